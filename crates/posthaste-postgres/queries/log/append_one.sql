-- Appends one row in the caller's transaction. As long as the log has one shard, its sequence is known here; else the row comes
-- without a number, and the table's trigger gives it its shard and its number.
insert into "@outbox" (
    shard, seq, id, topic, ordering_key, tenant, event_type, source, aggregate_type, aggregate_id, content_type, payload, headers
) values (
    0,
    case pg_sequence_last_value('@schema.log_shape'::regclass) when 1 then nextval('@schema.log_shard_0_seq'::regclass) end,
    $1::text::uuid, $2::text, $3::text, $4::text, $5::text, $6::text, $7::text, $8::text, $9::text, $10::bytea,
    convert_to($11::text, 'UTF8')
)
