-- Appends rows in the caller's transaction, in the order of the call, which is that of the arrays. The shard follows from the key,
-- or from the id where there is none; sequences say how many shards there are, whatever snapshot the transaction has. As long as
-- there is one, which the shape 1 says, no key is hashed and no sequence is looked up by its name.
--
-- Arrays side by side in a select list: in "from" each would be copied into a table of its own first. One element stands for the
-- same in all rows, none for nulls only.
insert into "@outbox" (
    segment, shard, seq, id, topic, ordering_key, tenant, event_type, source, aggregate_type, aggregate_id, content_type, payload,
    headers
)
select i.segment, i.shard,
    case i.shape
        when 1 then nextval('@schema.log_shard_0_seq'::regclass)
        else nextval(('@schema.log_shard_' || i.shard || '_seq')::regclass)
    end,
    i.id::uuid,
    coalesce(i.topic, (select ($2::text[])[1] where cardinality($2::text[]) = 1)),
    i.ordering_key,
    coalesce(i.tenant, (select ($4::text[])[1] where cardinality($4::text[]) = 1)),
    coalesce(i.event_type, (select ($5::text[])[1] where cardinality($5::text[]) = 1)),
    coalesce(i.source, (select ($6::text[])[1] where cardinality($6::text[]) = 1)),
    coalesce(i.aggregate_type, (select ($7::text[])[1] where cardinality($7::text[]) = 1)),
    coalesce(i.aggregate_id, (select ($8::text[])[1] where cardinality($8::text[]) = 1)),
    coalesce(i.content_type, (select ($9::text[])[1] where cardinality($9::text[]) = 1)),
    i.payload,
    convert_to(coalesce(i.headers, (select ($11::text[])[1] where cardinality($11::text[]) = 1)), 'UTF8')
from (
    select i.segment, i.shape, i.id, i.topic,
        coalesce(i.ordering_key, (select ($3::text[])[1] where cardinality($3::text[]) = 1)) as ordering_key,
        i.tenant, i.event_type, i.source, i.aggregate_type, i.aggregate_id, i.content_type, i.payload, i.headers,
        case i.shape
            when 1 then 0
            else (i.shape >> 16)::integer + (('x' || left(md5(coalesce(i.ordering_key,
                (select ($3::text[])[1] where cardinality($3::text[]) = 1), i.id)), 8))::bit(32)::integer
                & 2147483647) % (i.shape & 65535)::integer
        end as shard
    from (
        select
            (select pg_sequence_last_value('@schema.log_segment'::regclass)) as segment,
            (select pg_sequence_last_value('@schema.log_shape'::regclass)) as shape,
            unnest($1::text[]) as id, unnest($2::text[]) as topic, unnest($3::text[]) as ordering_key,
            unnest($4::text[]) as tenant, unnest($5::text[]) as event_type, unnest($6::text[]) as source,
            unnest($7::text[]) as aggregate_type, unnest($8::text[]) as aggregate_id, unnest($9::text[]) as content_type,
            unnest($10::bytea[]) as payload, unnest($11::text[]) as headers
    ) i
) i
