insert into plain (shard, seq, id, topic, ordering_key, event_type, source, aggregate_type, aggregate_id, content_type, payload)
values (0, nextval('plain_seq'), $1, $2, $3, $4, $5, $6, $3, 'application/json', $7)
