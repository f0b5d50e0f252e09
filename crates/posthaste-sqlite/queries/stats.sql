-- Counts what is not delivered, up to a number of each kind. The oldest fresh row is the first by sequence.
--   ?1 namespace  ?2 how many rows of a kind are counted
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now),
fresh as (
    select count(*) as n from (
        select 1 from "@outbox" indexed by "@outbox+fresh"
        where "@namespace" = ?1 and "@status" = '@pending' and "@next_attempt_at" <= "@created_at"
        limit ?2
    )
),
head as (
    select "@created_at" as created_at from "@outbox" indexed by "@outbox+fresh"
    where "@namespace" = ?1 and "@status" = '@pending' and "@next_attempt_at" <= "@created_at"
    order by "@seq" limit 1
),
waiting as (
    select count(*) as n, count(*) filter (where next_attempt_at > (select now from clock)) as not_due,
        min(created_at) as oldest
    from (
        select "@next_attempt_at" as next_attempt_at, "@created_at" as created_at
        from "@outbox" indexed by "@outbox+waiting"
        where "@namespace" = ?1 and "@status" = '@pending' and "@next_attempt_at" > "@created_at"
        limit ?2
    )
),
leased as (
    select count(*) as n, min("@created_at") as oldest from "@outbox" indexed by "@outbox+leased"
    where "@namespace" = ?1 and "@status" = '@processing'
),
given_up as (
    select count(*) as n from (
        select 1 from "@outbox" indexed by "@outbox+dead" where "@namespace" = ?1 and "@status" = '@dead' limit ?2
    )
),
oldest as (
    select min(created_at) as created_at
    from (select created_at from head union all select oldest from waiting union all select oldest from leased)
    -- Anything may stand there.
    where typeof(created_at) = 'integer' and created_at >= 0
)
select
    fresh.n + waiting.n as pending, waiting.not_due as waiting, leased.n as processing, given_up.n as dead,
    coalesce(clock.now - oldest.created_at, 0) as oldest_ms
from clock, fresh, waiting, leased, given_up, oldest
