-- The shards and who reads them, and the instances that are there.
--   $1 the table of shards
select s.shard, s.epoch, case when s.leased_until > clock_timestamp() then s.owner end as owner,
    array(
        select lpad(to_hex(l.objid::bigint), 8, '0')
        from pg_locks l
        where l.locktype = 'advisory' and l.granted and l.objsubid = 2
            and l.database = (select oid from pg_database where datname = current_database())
            and l.classid::bigint = (hashtext('posthaste:log_seats:' || $1::text::regclass::oid::text)::bigint & 4294967295)
    ) as instances
from "posthaste".log_shards s
order by s.shard
