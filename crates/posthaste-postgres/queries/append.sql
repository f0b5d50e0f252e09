-- Writes rows without dedupe keys in the caller's transaction, in the order of the call. What comes back was not written:
-- its id exists.
--
-- Arrays side by side in a select list: in "from" each would be copied into a table of its own first. One element stands for the
-- same in all rows, none for nulls only.
with written as (
    insert into "@outbox" (
        "@id", "@namespace", "@topic", "@ordering_key", "@tenant", "@event_type", "@source", "@aggregate_type",
        "@aggregate_id", "@content_type", "@payload", "@headers", "@content_hash", "@next_attempt_at"
    )
    select
        id::uuid,
        coalesce(namespace, (select ($2::text[])[1] where cardinality($2::text[]) = 1)),
        coalesce(topic, (select ($3::text[])[1] where cardinality($3::text[]) = 1)),
        coalesce(ordering_key, (select ($4::text[])[1] where cardinality($4::text[]) = 1)),
        coalesce(tenant, (select ($5::text[])[1] where cardinality($5::text[]) = 1)),
        coalesce(event_type, (select ($6::text[])[1] where cardinality($6::text[]) = 1)),
        coalesce(source, (select ($7::text[])[1] where cardinality($7::text[]) = 1)),
        coalesce(aggregate_type, (select ($8::text[])[1] where cardinality($8::text[]) = 1)),
        coalesce(aggregate_id, (select ($9::text[])[1] where cardinality($9::text[]) = 1)),
        coalesce(content_type, (select ($10::text[])[1] where cardinality($10::text[]) = 1)),
        payload,
        case coalesce(headers, (select ($12::text[])[1] where cardinality($12::text[]) = 1))
            when '{}' then '{}'
            else coalesce(headers, (select ($12::text[])[1] where cardinality($12::text[]) = 1))::jsonb
        end,
        content_hash, greatest(now(), not_before)
    from (
        select
            unnest($1::text[]) as id, unnest($2::text[]) as namespace, unnest($3::text[]) as topic,
            unnest($4::text[]) as ordering_key, unnest($5::text[]) as tenant, unnest($6::text[]) as event_type,
            unnest($7::text[]) as source, unnest($8::text[]) as aggregate_type, unnest($9::text[]) as aggregate_id,
            unnest($10::text[]) as content_type, unnest($11::bytea[]) as payload, unnest($12::text[]) as headers,
            unnest($13::bytea[]) as content_hash, unnest($14::timestamptz[]) as not_before
    ) i
    on conflict ("@id") do nothing
    returning "@id" as id
)
select i.place, i.id, false as is_new
from unnest($1::text[]) with ordinality as i (id, place)
-- Mostly all are written, and then none is looked for.
where (select count(*) from written) < cardinality($1::text[]) and i.id::uuid not in (select id from written)
order by i.place
