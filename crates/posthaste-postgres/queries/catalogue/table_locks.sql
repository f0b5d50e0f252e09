-- Says who keeps others from writing to tables: whoever has locked one of them as a whole, or one of its partitions, or waits
-- to, which lets nobody pass either.
--   $1 tables
select case when l.pid is null then 'a prepared transaction'
        else 'session ' || l.pid || coalesce(' (' || nullif(a.application_name, '') || ')', '') end
    || case when l.granted then ' has locked' else ' waits for a lock on' end
    || ' the whole table ' || l.relation::regclass || ' (' || l.mode || ')' as holder
from pg_locks l
left join pg_stat_activity a on a.pid = l.pid
where l.locktype = 'relation'
    and l.database = (select oid from pg_database where datname = current_database())
    and l.relation in (
        select t.oid from unnest($1::text[]::regclass[]::oid[]) as t (oid)
        union all
        select inhrelid from pg_inherits where inhparent = any ($1::text[]::regclass[]::oid[])
    )
    -- Those that are in the way of a row exclusive lock.
    and l.mode in ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
    and l.pid is distinct from pg_backend_pid()
order by l.granted desc, l.pid
limit 1
