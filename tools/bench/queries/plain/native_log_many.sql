-- The fastest plain insert of many rows: one statement, and arrays of what differs between them.
insert into plain (shard, seq, id, topic, ordering_key, event_type, source, aggregate_type, aggregate_id, payload)
select 0, nextval('plain_seq'), id, $2, key, $4, $5, $6, key, payload
from (select unnest($1::uuid[]) as id, unnest($3::text[]) as key, unnest($7::bytea[]) as payload) t
