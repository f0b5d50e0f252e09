-- The fastest plain insert of many rows: one statement, one array per column.
insert into posthaste.outbox (id, namespace, topic, ordering_key, content_type, payload, headers, content_hash)
select id, 'default', topic, ordering_key, 'application/json', payload, '{}', content_hash
from unnest($1::uuid[], $2::text[], $3::text[], $4::bytea[], $5::bytea[])
    as t (id, topic, ordering_key, payload, content_hash)
