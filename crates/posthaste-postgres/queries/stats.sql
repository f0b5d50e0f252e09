-- Counts what is not delivered.
/*if split_index*/
-- Exact up to 100,000 rows of a kind. Of more, nobody needs the last digit every few seconds: the number is what the
-- server believes to be in the index. The oldest fresh row is the first by sequence.
with fresh as (
    select count(*) as n from (
        select from "@outbox"
        where "@namespace" = $1 and "@status" = '@pending' and "@next_attempt_at" <= "@created_at"
        limit 100001
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
        limit 100001
    ) counted
),
leased as (
    select count(*) as n, min("@created_at") as oldest from "@outbox"
    where "@namespace" = $1 and "@status" = '@processing'
),
given_up as (
    select count(*) as n from (
        select from "@outbox" where "@namespace" = $1 and "@status" = '@dead' limit 100001
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
    select case when fresh.n > 100000 then greatest(fresh.n, estimates.fresh) else fresh.n end as fresh,
        case when waiting.n > 100000 then greatest(waiting.n, estimates.waiting) else waiting.n end as waiting,
        waiting.due,
        leased.n as leased,
        case when given_up.n > 100000 then greatest(given_up.n, estimates.dead) else given_up.n end as dead,
        least((select created_at from head), waiting.oldest, leased.oldest) as oldest
    from fresh, waiting, leased, given_up, estimates
)
select
    fresh + waiting as pending, waiting - due as waiting, leased as processing, dead,
    case when isfinite(oldest) then extract(epoch from now() - oldest) else 0 end::float8 as oldest_seconds
from counts
/*else*/
select
    count(*) filter (where "@o.status" in ('@open')) as pending,
    /*if next_attempt_at*/ count(*) filter (where "@o.status" in ('@open')
        and "@o.next_attempt_at" > /*as next_attempt_at*/ now() /*end*/) /*else*/ 0::bigint /*end*/ as waiting,
    /*if lease_token*/ count(*) filter (where "@o.status" = '@processing') /*else*/ 0::bigint /*end*/ as processing,
    count(*) filter (where "@o.status" = '@dead') as dead,
    coalesce(extract(epoch from now() - min("@o.created_at:time") filter (where "@o.status" <> '@dead')), 0)::float8
        as oldest_seconds
from "@outbox" o
where "@o.status" in ('@open' /*if lease_token*/ , '@processing' /*end*/ , '@dead')
    and /*if namespace*/ "@o.namespace:text" = $1 /*else*/ $1::text is not null /*end*/
/*end*/
