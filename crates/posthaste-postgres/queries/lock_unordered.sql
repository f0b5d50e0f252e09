-- Locks due rows in the table's order until the end of the transaction, skipping what others hold; keys are ignored.
--   $1 namespace  $2 max attempts  $3 topics  $4 tenant  $5 limit  $6 max bytes
with locked as materialized (
    select o.*, coalesce(octet_length("@o.payload:bytes"), 0) as posthaste_bytes
    from "@outbox" o
    where "@o.status" in ('@open')
        /*put o.and_due*/
        and /*if attempts*/ coalesce("@o.attempts", 0) < /*put o.max_attempts*/ /*else*/ $2::integer > 0 /*end*/
        and /*put o.in_scope*/
    order by "@o.order"
    limit $5
    for update skip locked
),
measured as (
    select o.*, sum(posthaste_bytes) over (order by "@o.order" rows unbounded preceding) - posthaste_bytes
        as posthaste_bytes_before
    from locked o
)
select "@o.seq:int"::bigint as seq, "@o.message",
        -- The attempt that is made now is counted when its verdict is written.
        coalesce("@o.attempts:int", 0)::bigint + 1 as attempts, "@o.max_attempts:int"::bigint as max_attempts,
        /*if version*/ coalesce("@o.version", 0)::bigint /*else*/ null::bigint /*end*/ as version, "@o.created_at:time" as created_at
from measured o
where posthaste_bytes_before = 0 or posthaste_bytes_before + posthaste_bytes <= $6
order by "@o.order"
