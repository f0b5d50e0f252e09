-- Ends an earlier connection of this reader, which the server has not missed yet, and with it its lock.
--   $1 the cursor's table  $2 the process of that connection  $3 the shard, where there are shards
select pg_terminate_backend(l.pid) as ended
from pg_locks l
where l.locktype = 'advisory' and l.granted and l.pid = $2 and l.objsubid = 1
    and ((l.classid::bigint << 32) | l.objid::bigint)
        = hashtextextended('posthaste:log:' || $1::text::regclass::oid::text /*if shard*/ || ':' || $3::integer::text /*end*/, 0)
