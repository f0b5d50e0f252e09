-- Writes one row without a dedupe key in the caller's transaction. Nothing comes back if its id exists.
insert into "@outbox" (
    "@id", "@namespace", "@topic", "@ordering_key", "@tenant", "@event_type", "@source", "@aggregate_type",
    "@aggregate_id", "@content_type", "@payload", "@headers", "@content_hash", "@next_attempt_at"
)
values (
    $1::text::uuid, $2::text, $3::text, $4::text, $5::text, $6::text, $7::text, $8::text,
    $9::text, $10::text, $11::bytea, $12::text::jsonb, $13::bytea, greatest(now(), $14::timestamptz)
)
on conflict ("@id") do nothing
returning 1::bigint as place, "@id"::text as id, true as is_new
