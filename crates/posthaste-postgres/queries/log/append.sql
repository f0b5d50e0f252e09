-- Appends rows in the caller's transaction, in the order of the call, which is that of the arrays. The shard follows from the key,
-- or from the id where there is none; sequences say how many shards there are, whatever snapshot the transaction has.
insert into "@outbox" (
    segment, shard, seq, id, topic, ordering_key, tenant, event_type, source, aggregate_type, aggregate_id, content_type, payload,
    headers
)
select i.segment, i.shard, nextval(('@schema.log_shard_' || i.shard || '_seq')::regclass), i.id::uuid, i.topic, i.ordering_key,
    i.tenant, i.event_type, i.source, i.aggregate_type, i.aggregate_id, i.content_type, i.payload, convert_to(i.headers, 'UTF8')
from (
    select i.*, segment, (shape >> 16)::integer + (('x' || left(md5(coalesce(i.ordering_key, i.id)), 8))::bit(32)::integer
        & 2147483647) % (shape & 65535)::integer as shard
    from pg_sequence_last_value('@schema.log_segment'::regclass) as segment,
        pg_sequence_last_value('@schema.log_shape'::regclass) as shape,
        unnest(
            $1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[],
            $10::bytea[], $11::text[]
        ) as i (
            id, topic, ordering_key, tenant, event_type, source, aggregate_type, aggregate_id, content_type, payload, headers
        )
) i
