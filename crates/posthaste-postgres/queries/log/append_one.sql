-- Appends one row in the caller's transaction. The shard follows from the key, or from the id where there is none; sequences say
-- how many shards there are, whatever snapshot the transaction has.
insert into "@outbox" (
    shard, seq, id, topic, ordering_key, tenant, event_type, source, aggregate_type, aggregate_id, content_type, payload, headers
)
select s.shard, nextval(('@schema.log_shard_' || s.shard || '_seq')::regclass), ($1::text[])[1]::uuid, ($2::text[])[1],
    ($3::text[])[1], ($4::text[])[1], ($5::text[])[1], ($6::text[])[1], ($7::text[])[1], ($8::text[])[1],
    ($9::text[])[1], ($10::bytea[])[1], convert_to(($11::text[])[1], 'UTF8')
from (
    select (shape >> 16)::integer + (('x' || left(md5(coalesce(($3::text[])[1], ($1::text[])[1])), 8))::bit(32)::integer
        & 2147483647) % (shape & 65535)::integer as shard
    from pg_sequence_last_value('@schema.log_shape'::regclass) as shape
) s
