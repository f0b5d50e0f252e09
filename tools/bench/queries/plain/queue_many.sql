-- The fastest plain insert of many rows: one statement, one array per column.
insert into plain (id, namespace, topic, ordering_key, event_type, source, aggregate_type, aggregate_id, content_type, payload,
    headers, content_hash)
select id, 'default', $2, key, $4, $5, $6, key, 'application/json', payload, '{}', decode(repeat('00', 32), 'hex')
from unnest($1::uuid[], $3::text[], $7::bytea[]) as t (id, key, payload)
