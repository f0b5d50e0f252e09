-- Counts what is not delivered.
/*if split_index*/
-- The oldest fresh row is the first by sequence; the other kinds are few.
with fresh as (
    select count(*) as n from "@outbox"
    where "@namespace" = $1 and "@status" = '@pending' and "@next_attempt_at" <= "@created_at"
),
head as (
    select "@created_at" as created_at from "@outbox"
    where "@namespace" = $1 and "@status" = '@pending' and "@next_attempt_at" <= "@created_at"
    order by "@seq" limit 1
),
waiting as (
    select count(*) as n, count(*) filter (where "@next_attempt_at" > now()) as not_due, min("@created_at") as oldest
    from "@outbox"
    where "@namespace" = $1 and "@status" = '@pending' and "@next_attempt_at" > "@created_at"
),
leased as (
    select count(*) as n, min("@created_at") as oldest from "@outbox"
    where "@namespace" = $1 and "@status" = '@processing'
),
given_up as (
    select count(*) as n from "@outbox" where "@namespace" = $1 and "@status" = '@dead'
)
select
    fresh.n + waiting.n as pending, waiting.not_due as waiting, leased.n as processing, given_up.n as dead,
    coalesce(extract(epoch from now() - least((select created_at from head), waiting.oldest, leased.oldest)), 0)::float8
        as oldest_seconds
from fresh, waiting, leased, given_up
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
