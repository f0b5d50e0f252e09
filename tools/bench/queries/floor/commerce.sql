-- Every column that a relay needs, by the cursor.
--   $1 (one shard only)  $2 last id  $3 limit
select 0::bigint, id, event_id, event_type, source, aggregate_type, aggregate_id, convert_to(payload::text, 'UTF8'), created_at
from outbox
where id > $2 and $1::bigint is not null
order by id
limit $3
