-- Writes rows of one kind without dedupe keys in the caller's transaction, in the order of the call: from namespace to content type
-- all have the same, and none has a time of its own. What comes back was not written: its id exists.
--
-- Arrays side by side in a select list, and as few as can be: each is asked for each row. One element stands for the same in all
-- rows, none for nulls only.
with written as (
    insert into "@outbox" (
        "@id", "@namespace", "@topic", "@ordering_key", "@tenant", "@event_type", "@source", "@aggregate_type",
        "@aggregate_id", "@content_type", "@payload", "@headers", "@content_hash", "@next_attempt_at"
    )
    select
        id, $2::text, $3::text,
        coalesce(ordering_key, (select ($9::text[])[1] where cardinality($9::text[]) = 1)),
        $4::text, $5::text, $6::text, $7::text,
        coalesce(aggregate_id, (select ($10::text[])[1] where cardinality($10::text[]) = 1)),
        $8::text, payload,
        case coalesce(headers, (select ($12::text[])[1] where cardinality($12::text[]) = 1))
            when '{}' then '{}'
            else coalesce(headers, (select ($12::text[])[1] where cardinality($12::text[]) = 1))::jsonb
        end,
        content_hash, now()
    from (
        select
            unnest($1::uuid[]) as id, unnest($9::text[]) as ordering_key, unnest($10::text[]) as aggregate_id,
            unnest($11::bytea[]) as payload, unnest($12::text[]) as headers, unnest($13::bytea[]) as content_hash
    ) i
    on conflict ("@id") do nothing
    returning "@id" as id
)
select i.place, i.id::text as id, false as is_new
from unnest($1::uuid[]) with ordinality as i (id, place)
-- Mostly all are written, and then none is looked for.
where (select count(*) from written) < cardinality($1::uuid[]) and i.id not in (select id from written)
order by i.place
