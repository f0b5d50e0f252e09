-- Appends rows of one kind in the caller's transaction, in the order of the call: from topic to content type all have the same.
-- Shards as in "append".
--
-- Arrays side by side in a select list, and as few as can be: each is asked for each row. One element stands for the same in all
-- rows, none for nulls only.
insert into "@outbox" (
    segment, shard, seq, id, topic, ordering_key, tenant, event_type, source, aggregate_type, aggregate_id, content_type, payload,
    headers
)
select i.segment, i.shard,
    case i.shape
        when 1 then nextval('@schema.log_shard_0_seq'::regclass)
        else nextval(('@schema.log_shard_' || i.shard || '_seq')::regclass)
    end,
    i.id, $2::text, i.ordering_key, $3::text, $4::text, $5::text, $6::text,
    coalesce(i.aggregate_id, (select ($9::text[])[1] where cardinality($9::text[]) = 1)),
    $7::text, i.payload,
    convert_to(coalesce(i.headers, (select ($11::text[])[1] where cardinality($11::text[]) = 1)), 'UTF8')
from (
    select i.segment, i.shape, i.id, i.aggregate_id, i.payload, i.headers,
        coalesce(i.ordering_key, (select ($8::text[])[1] where cardinality($8::text[]) = 1)) as ordering_key,
        case i.shape
            when 1 then 0
            else (i.shape >> 16)::integer + (('x' || left(md5(coalesce(i.ordering_key,
                (select ($8::text[])[1] where cardinality($8::text[]) = 1), i.id::text)), 8))::bit(32)::integer
                & 2147483647) % (i.shape & 65535)::integer
        end as shard
    from (
        select
            (select pg_sequence_last_value('@schema.log_segment'::regclass)) as segment,
            (select pg_sequence_last_value('@schema.log_shape'::regclass)) as shape,
            unnest($1::uuid[]) as id, unnest($8::text[]) as ordering_key, unnest($9::text[]) as aggregate_id,
            unnest($10::bytea[]) as payload, unnest($11::text[]) as headers
    ) i
) i
