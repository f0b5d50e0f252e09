-- The fastest plain insert of many rows: one statement, and arrays of what differs between them.
insert into plain (id, namespace, topic, ordering_key, event_type, source, aggregate_type, aggregate_id, content_type, payload,
    headers, content_hash)
select id, 'default', $2, key, $4, $5, $6, key, 'application/json', payload, '{}', decode(repeat('00', 32), 'hex')
from (select unnest($1::uuid[]) as id, unnest($3::text[]) as key, unnest($7::bytea[]) as payload) t
