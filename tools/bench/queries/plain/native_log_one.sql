-- The plainest insert of what an enqueue writes, which keeps no content type for JSON.
insert into plain (shard, seq, id, topic, ordering_key, event_type, source, aggregate_type, aggregate_id, payload)
values (0, nextval('plain_seq'), $1, $2, $3, $4, $5, $6, $3, $7)
