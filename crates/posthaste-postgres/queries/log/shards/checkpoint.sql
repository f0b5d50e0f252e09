-- Writes down how far shards are settled, of all of them at once. One that was taken by another instance is left as it is, and
-- not returned.
--   $1 the shards  $2 their epochs  $3 the positions  $4 the highest numbers that were read  $5 the states
update "posthaste".log_shards s
set position = o.position, hi = o.hi, state = o.state, updated_at = clock_timestamp()
from unnest($1::integer[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[]) as o (shard, epoch, position, hi, state)
where s.shard = o.shard and s.epoch = o.epoch
returning s.shard
