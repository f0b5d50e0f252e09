-- The shards that may be read and who does, and the instances that are there. One that is gone has no seat, whatever its lease.
--   $1 the table of shards
with there as materialized (
    select lpad(to_hex(l.objid::bigint), 8, '0') as digits
    from pg_locks l
    where l.locktype = 'advisory' and l.granted and l.objsubid = 2
        and l.database = (select oid from pg_database where datname = current_database())
        and l.classid::bigint = (hashtext('posthaste:log_seats:' || $1::text::regclass::oid::text)::bigint & 4294967295)
)
select s.shard, s.generation, s.epoch,
    case when s.leased_until > clock_timestamp() and right(s.owner::text, 8) in (select digits from there) then s.owner end as owner,
    array(select digits from there) as instances, (select count(*) from "posthaste".log_shards) as shards
from "posthaste".log_shards s
where s.shard in (select "posthaste".log_readable_shards())
order by s.shard
