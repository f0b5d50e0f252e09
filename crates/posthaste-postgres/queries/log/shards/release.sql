-- Gives shards up, so that another instance can take them at once.
--   $1 the shards  $2 their epochs
update "posthaste".log_shards s
set owner = null, leased_until = null, updated_at = clock_timestamp()
from unnest($1::integer[], $2::bigint[]) as o (shard, epoch)
where s.shard = o.shard and s.epoch = o.epoch
returning s.shard
