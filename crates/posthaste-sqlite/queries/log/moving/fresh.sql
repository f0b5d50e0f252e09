-- Moves what is due and was never tried to the log, in its order, but for what the log has already.
--   ?1 what is due at this time was fresh
insert into "@outbox" (
    id, topic, ordering_key, tenant, dedupe_key, event_type, source, aggregate_type, aggregate_id, content_type, payload, headers,
    content_hash, created_at
)
select id, topic, ordering_key, tenant, dedupe_key, event_type, source, aggregate_type, aggregate_id, content_type, payload,
    nullif(headers, '{}'), content_hash, created_at
from "@queue" q
where namespace = 'default' and status in ('pending', 'processing') and attempts = 0 and next_attempt_at <= ?1
    and not exists (select 1 from "@outbox" o where o.id = q.id)
    and not exists (select 1 from "@failed" f where f.id = q.id)
order by seq
