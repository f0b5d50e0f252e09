insert into plain (shard, seq, id, topic, ordering_key, event_type, source, aggregate_type, aggregate_id, content_type, payload)
select 0, nextval('plain_seq'), id, $2, key, $4, $5, $6, key, 'application/json', payload
from unnest($1::uuid[], $3::text[], $7::bytea[]) as t (id, key, payload)
