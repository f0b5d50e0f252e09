-- Appends very many rows in the caller's transaction; a trigger gives them their shards and numbers, in the order in which they
-- come.
copy "@outbox" (
    id, topic, ordering_key, tenant, event_type, source, aggregate_type, aggregate_id, content_type, payload, headers
) from stdin with (format binary)
