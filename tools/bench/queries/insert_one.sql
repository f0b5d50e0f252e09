-- The plainest insert of what an enqueue writes.
insert into posthaste.outbox (id, namespace, topic, ordering_key, content_type, payload, headers, content_hash)
values ($1, 'default', $2, $3, 'application/json', $4, '{}', $5)
