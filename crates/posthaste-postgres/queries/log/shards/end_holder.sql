-- Who has the lock of a reader; ends it if it is of this role: it has no seat, so it may write nothing any more.
--   $1 the cursor's table  $2 the shard
select l.pid, coalesce(a.application_name, '') as application, coalesce(a.usename, '?')::text as role,
    coalesce(a.client_addr::text, 'a Unix socket') as client,
    case when a.usename = current_user then pg_terminate_backend(l.pid) else false end as ended
from pg_locks l
left join pg_stat_activity a on a.pid = l.pid
where l.locktype = 'advisory' and l.granted and l.objsubid = 1 and l.pid <> pg_backend_pid()
    and l.database = (select oid from pg_database where datname = current_database())
    and ((l.classid::bigint << 32) | l.objid::bigint)
        = hashtextextended('posthaste:log:' || $1::text::regclass::oid::text || ':' || $2::integer::text, 0)
