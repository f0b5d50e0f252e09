-- Appends one row in the caller's transaction. The table's trigger gives it its shard and its number, which is the quickest way for
-- one row.
insert into "@outbox" (
    id, topic, ordering_key, tenant, event_type, source, aggregate_type, aggregate_id, content_type, payload, headers
) values (
    ($1::text[])[1]::uuid, ($2::text[])[1], ($3::text[])[1], ($4::text[])[1], ($5::text[])[1], ($6::text[])[1],
    ($7::text[])[1], ($8::text[])[1], ($9::text[])[1], ($10::bytea[])[1], convert_to(($11::text[])[1], 'UTF8')
)
