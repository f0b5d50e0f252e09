-- Counts what is not delivered.
/*if split_index*/
--   $1 namespace  $2 how many rows of a kind are counted
-- Of more, nobody needs the last digit every few seconds: the number is what the server believes to be in the index. The
-- oldest fresh row is the first by sequence.
with fresh as (
    select count(*) as n from (
        select from "@outbox"
        where "@namespace" = $1 and "@status" = '@pending' and "@next_attempt_at" <= "@created_at"
        limit $2::bigint + 1
    ) counted
),
head as (
    select "@created_at" as created_at from "@outbox"
    where "@namespace" = $1 and "@status" = '@pending' and "@next_attempt_at" <= "@created_at"
    order by "@seq" limit 1
),
waiting as (
    select count(*) as n, count(*) filter (where next_attempt_at <= now()) as due, min(created_at) as oldest
    from (
        select "@next_attempt_at" as next_attempt_at, "@created_at" as created_at
        from "@outbox"
        where "@namespace" = $1 and "@status" = '@pending' and "@next_attempt_at" > "@created_at"
        order by "@next_attempt_at"
        limit $2::bigint + 1
    ) counted
),
leased as (
    select count(*) as n, min("@created_at") as oldest from "@outbox"
    where "@namespace" = $1 and "@status" = '@processing'
),
given_up as (
    select count(*) as n from (
        select from "@outbox" where "@namespace" = $1 and "@status" = '@dead' limit $2::bigint + 1
    ) counted
),
estimates as (
    select coalesce(max(c.reltuples) filter (where c.relname = 'outbox_fresh'), 0)::bigint as fresh,
        coalesce(max(c.reltuples) filter (where c.relname = 'outbox_waiting'), 0)::bigint as waiting,
        coalesce(max(c.reltuples) filter (where c.relname = 'outbox_dead'), 0)::bigint as dead
    from pg_catalog.pg_index i
    join pg_catalog.pg_class c on c.oid = i.indexrelid
    where i.indrelid = (select o.tableoid from "@outbox" o limit 1)
),
counts as (
    select case when fresh.n > $2::bigint then greatest(fresh.n, estimates.fresh) else fresh.n end as fresh,
        case when waiting.n > $2::bigint then greatest(waiting.n, estimates.waiting) else waiting.n end as waiting,
        waiting.due,
        leased.n as leased,
        case when given_up.n > $2::bigint then greatest(given_up.n, estimates.dead) else given_up.n end as dead,
        least((select created_at from head), waiting.oldest, leased.oldest) as oldest
    from fresh, waiting, leased, given_up, estimates
)
select
    fresh + waiting as pending, waiting - due as waiting, leased as processing, dead,
    case when isfinite(oldest) then extract(epoch from now() - oldest) else 0 end::float8 as oldest_seconds
from counts
/*else*/
--   $1 namespace  $2 how many rows of a kind are counted
-- The oldest pending row is the first in order, or one of those that were counted.
select
    pending.n as pending, pending.not_due as waiting, leased.n as processing, given_up.n as dead,
    coalesce(extract(epoch from now() - least(head.oldest, pending.oldest, leased.oldest)), 0)::float8 as oldest_seconds
from (
    select count(*) as n, count(*) filter (where not_due) as not_due, min(created_at) as oldest
    from (
        select /*if next_attempt_at*/ "@o.next_attempt_at" > /*as next_attempt_at*/ now() /*end*/ /*else*/ false /*end*/ as not_due,
            "@o.created_at:time" as created_at
        from "@outbox" o
        where "@o.status" in ('@open') and /*if namespace*/ "@o.namespace:text" = $1 /*else*/ $1::text is not null /*end*/
        limit $2::bigint + 1
    ) counted
) pending,
(
    select min(created_at) as oldest
    from (
        select "@o.created_at:time" as created_at
        from "@outbox" o
        where "@o.status" in ('@open') and /*if namespace*/ "@o.namespace:text" = $1 /*else*/ $1::text is not null /*end*/
        order by "@o.order"
        limit 1
    ) first
) head,
(
    select count(*) as n, min(created_at) as oldest
    from (
        select "@o.created_at:time" as created_at
        from "@outbox" o
        where /*if lease_token*/ "@o.status" = '@processing' /*else*/ false /*end*/
            and /*if namespace*/ "@o.namespace:text" = $1 /*else*/ $1::text is not null /*end*/
        limit $2::bigint + 1
    ) counted
) leased,
(
    select count(*) as n
    from (
        select
        from "@outbox" o
        where "@o.status" = '@dead' and /*if namespace*/ "@o.namespace:text" = $1 /*else*/ $1::text is not null /*end*/
        limit $2::bigint + 1
    ) counted
) given_up
/*end*/
