-- The plainest insert of what an enqueue writes.
insert into plain (id, namespace, topic, ordering_key, event_type, source, aggregate_type, aggregate_id, content_type, payload,
    headers, content_hash)
values ($1, 'default', $2, $3, $4, $5, $6, $3, 'application/json', $7, '{}', decode(repeat('00', 32), 'hex'))
