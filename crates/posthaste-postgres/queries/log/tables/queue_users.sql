-- Transactions that use the queue and keep a step of a move from it, prepared ones included, with what ends them; the oldest ones.
--   $1 the table, quoted
--   $2 whether those that only read are in the way, too
select u.name
from (
    select distinct on (l.virtualtransaction) coalesce(a.xact_start, p.prepared) as since, case
            when a.backend_type = 'autovacuum worker' then format('process %s, an autovacuum of this table for %s s, which gives way soon '
                'or, if it prevents wraparound, must end', l.pid, round(extract(epoch from clock_timestamp() - a.xact_start)))
            when l.pid is not null then format('process %s (%s, %s%s), which `select pg_terminate_backend(%s)` ends', l.pid,
                coalesce(nullif(a.application_name, ''), a.usename, 'unknown'), coalesce(a.state, 'state not shown to this role'),
                ', for ' || round(extract(epoch from clock_timestamp() - a.xact_start))::text || ' s', l.pid)
            when p.gid is null then format('the prepared transaction with the number %s, to be committed or rolled back '
                '(pg_prepared_xacts)', coalesce(x.transactionid::text, l.virtualtransaction))
            else format('the prepared transaction %1$L (of %2$s, for %3$s s), which `commit prepared %1$L` or `rollback prepared %1$L` '
                'ends', p.gid, p.owner, round(extract(epoch from clock_timestamp() - p.prepared)))
        end as name
    from pg_locks l
    left join pg_stat_activity a on a.pid = l.pid
    -- Until the server is started anew it has the name under which it was prepared, so that only a lock tells its number.
    left join pg_locks x on l.pid is null and x.locktype = 'transactionid' and x.mode = 'ExclusiveLock' and x.pid is null
        and x.virtualtransaction = l.virtualtransaction
    left join pg_prepared_xacts p on p.transaction = x.transactionid
    where l.locktype = 'relation' and l.granted and l.relation = $1::text::regclass
        and l.database = (select oid from pg_database where datname = current_database())
        and ($2::boolean or l.mode not in ('AccessShareLock', 'RowShareLock'))
        and l.pid is distinct from pg_backend_pid()
) u
order by u.since
limit 5
