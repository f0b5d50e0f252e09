-- Locks due rows in the table's order until the end of the transaction, skipping what others hold; keys are ignored.
--   $1 namespace  $2 max attempts  $3 topics  $4 tenant  $5 limit  $6 max bytes
with locked as materialized (
    select o.*, coalesce(octet_length("@o.payload:bytes"), 0) as posthaste_bytes
    from "@outbox" o
    where "@o.status" in ('@open')
        /*if next_attempt_at*/ and ("@o.next_attempt_at" is null
            or "@o.next_attempt_at" <= /*as next_attempt_at*/ now() /*end*/) /*end*/
        and /*if attempts*/ coalesce("@o.attempts", 0) < /*if max_attempts*/ coalesce("@o.max_attempts" /*if retries*/ + 1 /*end*/, $2::integer)
            /*else*/ $2::integer /*end*/ /*else*/ $2::integer > 0 /*end*/
        and /*if namespace*/ "@o.namespace:text" = $1 /*else*/ $1::text is not null /*end*/
        and /*if topic*/ ($3::text[] is null or "@o.topic:text" = any ($3)) /*else*/ $3::text[] is null /*end*/
        and /*if tenant*/ ($4::text is null or "@o.tenant:text" = $4) /*else*/ $4::text is null /*end*/
    order by "@o.order"
    limit $5
    for update skip locked
),
measured as (
    select o.*, sum(posthaste_bytes) over (order by "@o.order" rows unbounded preceding) - posthaste_bytes
        as posthaste_bytes_before
    from locked o
)
select "@o.id:text" as id, "@o.event_id:text" as event_id, "@o.namespace:text" as namespace,
        "@o.topic:text" as topic, "@o.ordering_key:text" as ordering_key, "@o.tenant:text" as tenant,
        "@o.dedupe_key:text" as dedupe_key, "@o.event_type:text" as event_type, "@o.source:text" as source,
        "@o.aggregate_type:text" as aggregate_type, "@o.aggregate_id:text" as aggregate_id,
        "@o.content_type:text" as content_type, "@o.payload:bytes" as payload, "@o.headers:text" as headers,
        "@o.content_hash:bytes" as content_hash,
        -- The attempt that is made now is counted when its verdict is written.
        coalesce("@o.attempts:int", 0)::bigint + 1 as attempts, "@o.max_attempts:int"::bigint as max_attempts,
        /*if version*/ coalesce("@o.version", 0)::bigint /*else*/ null::bigint /*end*/ as version, "@o.created_at:time" as created_at
from measured o
where posthaste_bytes_before = 0 or posthaste_bytes_before + posthaste_bytes <= $6
order by "@o.order"
