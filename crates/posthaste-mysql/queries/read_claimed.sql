-- What was claimed, in order.
--   $1 ids
select
    "@o.id:text" as id, "@o.event_id:text" as event_id, "@o.namespace:text" as namespace, "@o.topic:text" as topic,
    "@o.ordering_key:text" as ordering_key, "@o.tenant:text" as tenant, "@o.dedupe_key:text" as dedupe_key,
    "@o.event_type:text" as event_type, "@o.source:text" as source, "@o.aggregate_type:text" as aggregate_type,
    "@o.aggregate_id:text" as aggregate_id, "@o.content_type:text" as content_type, "@o.payload:bytes" as payload,
    "@o.headers:text" as headers, "@o.content_hash:bytes" as content_hash, "@o.attempts:int" as attempts,
    "@o.max_attempts:int" as max_attempts, "@o.version:int" as version, "@o.created_at:time" as created_at
from "@outbox" o
where "@o.id" in ($1)
order by "@o.order"
