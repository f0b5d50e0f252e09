-- Takes free shards: whoever had them before may write of them no more, whatever it believes. Shards that another instance
-- takes at this moment are its.
--   $1 the instance  $2 how many  $3 lease in ms
update "posthaste".log_shards s
set epoch = s.epoch + 1, owner = $1, leased_until = clock_timestamp() + $3::bigint * interval '1 millisecond',
    updated_at = clock_timestamp()
from (
    select f.shard
    from "posthaste".log_shards f
    where f.owner is null or f.leased_until is null or f.leased_until <= clock_timestamp()
    order by f.shard
    limit $2
    for update skip locked
) free
where s.shard = free.shard
returning s.shard, s.epoch, s.state, s.position, s.xmin::text as written_by
