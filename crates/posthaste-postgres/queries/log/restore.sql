-- Brings a dead letter back that was kept elsewhere, unless that was done. It takes a number of its shard: its old place is long passed.
--   $1 event  $2 topic  $3 key  $4 tenant  $5 type  $6 source  $7, $8 aggregate  $9 content type  $10 payload  $11 headers
--   $12 attempts  $13 error  $14 time of the first insert
insert into "@failed" (
    shard, log_id, event_id, topic, ordering_key, tenant, event_type, source, aggregate_type, aggregate_id, content_type,
    payload, headers, attempts, last_error, created_at, died_at
)
select s.shard, nextval(('@schema.log_shard_' || s.shard || '_seq')::regclass), $1::uuid, $2::text, $3::text, $4::text, $5::text,
    $6::text, $7::text, $8::text, $9::text, $10::bytea, convert_to($11::text, 'UTF8'), $12::integer, $13::text,
    $14::timestamptz, now()
from (
    select (shape >> 16)::integer + "@schema".log_hash(coalesce($3::text, $1::uuid::text)) % (shape & 65535)::integer as shard
    from pg_sequence_last_value('@schema.log_shape'::regclass) as shape
) s
where not exists (select from "@failed" where event_id = $1::uuid)
