-- Takes free shards of a generation: whoever had them before may write of them no more, whatever it believes. Shards that
-- another instance takes at this moment are its.
--   $1 the instance  $2 how many  $3 lease in ms  $4 the generation  $5 the table of shards
with there as materialized (
    select lpad(to_hex(l.objid::bigint), 8, '0') as digits
    from pg_locks l
    where l.locktype = 'advisory' and l.granted and l.objsubid = 2
        and l.database = (select oid from pg_database where datname = current_database())
        and l.classid::bigint = (hashtext('posthaste:log_seats:' || $5::text::regclass::oid::text)::bigint & 4294967295)
)
update "posthaste".log_shards s
set epoch = s.epoch + 1, owner = $1, leased_until = clock_timestamp() + $3::bigint * interval '1 millisecond',
    updated_at = clock_timestamp()
from (
    select f.shard
    from "posthaste".log_shards f
    where f.generation = $4 and (f.owner is null or f.leased_until is null or f.leased_until <= clock_timestamp()
        or right(f.owner::text, 8) not in (select digits from there))
    order by f.shard
    limit $2
    for update skip locked
) free
where s.shard = free.shard
returning s.shard, s.epoch
