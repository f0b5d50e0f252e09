-- The process that has the lock of a move, which lock_move.sql takes.
--   $1 the schema, quoted
select format('process %s (%s, %s%s)', l.pid, coalesce(nullif(a.application_name, ''), a.usename, 'unknown'),
    coalesce(a.state, 'state not shown to this role'),
    ', for ' || round(extract(epoch from clock_timestamp() - a.xact_start))::text || ' s') as name
from (select hashtextextended('posthaste:move:' || (parse_ident($1::text))[1], 0) as key) k
join pg_locks l on l.locktype = 'advisory' and l.objsubid = 1 and l.granted
    and l.classid = ((k.key >> 32) & 4294967295)::oid and l.objid = (k.key & 4294967295)::oid
    and l.database = (select oid from pg_database where datname = current_database())
left join pg_stat_activity a on a.pid = l.pid
