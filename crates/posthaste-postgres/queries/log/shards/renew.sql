-- Prolongs the leases of shards that are still this instance's, which may have another name by now.
--   $1 the shards  $2 their epochs  $3 lease in ms  $4 the instance
update "posthaste".log_shards s
set leased_until = clock_timestamp() + $3::bigint * interval '1 millisecond', owner = $4
from unnest($1::integer[], $2::bigint[]) as o (shard, epoch)
where s.shard = o.shard and s.epoch = o.epoch
returning s.shard
