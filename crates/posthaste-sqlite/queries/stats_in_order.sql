-- Counts what is not delivered, up to a number of each kind. The oldest pending row is the first in order, or one of those
-- that were counted.
--   ?1 namespace  ?2 how many rows of a kind are counted
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now),
open as (
    select count(*) as n, count(*) filter (where not_due) as not_due, min(created_at) as oldest
    from (
        select /*if next_attempt_at*/ "@next_attempt_at:time" > (select now from clock) /*else*/ 0 /*end*/ as not_due,
            "@created_at:time" as created_at
        from "@outbox"
        where "@status" in ('@open') /*if namespace*/ and "@namespace" = /*as namespace*/ ?1 /*end*/ /*end*/
        limit ?2
    )
),
head as (
    select min(created_at) as oldest
    from (
        select "@created_at:time" as created_at
        from "@outbox"
        where "@status" in ('@open') /*if namespace*/ and "@namespace" = /*as namespace*/ ?1 /*end*/ /*end*/
        order by "@order"
        limit 1
    )
),
leased as (
    select count(*) as n, min("@created_at:time") as oldest from "@outbox" where "@status" = '@processing' /*if namespace*/ and "@namespace" = /*as namespace*/ ?1 /*end*/ /*end*/
),
given_up as (
    select count(*) as n from (
        select 1 from "@outbox" where "@status" = '@dead' /*if namespace*/ and "@namespace" = /*as namespace*/ ?1 /*end*/ /*end*/ limit ?2
    )
),
oldest as (
    select min(oldest) as created_at
    from (select oldest from open union all select oldest from head union all select oldest from leased)
)
select
    open.n as pending, open.not_due as waiting, leased.n as processing, given_up.n as dead,
    -- Anything may stand there.
    cast(max(clock.now - coalesce(oldest.created_at, clock.now), 0) as integer) as oldest_ms
from clock, open, leased, given_up, oldest
