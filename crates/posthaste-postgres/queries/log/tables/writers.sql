-- Transactions that have written to the log and not ended, prepared ones included.
--   $1 the schema, quoted
select distinct on (l.virtualtransaction) l.virtualtransaction as name, case
        when l.pid is not null then format('process %s (%s, %s%s)', l.pid,
            coalesce(nullif(a.application_name, ''), a.usename, 'unknown'), coalesce(a.state, 'state not shown to this role'),
            ', for ' || round(extract(epoch from clock_timestamp() - a.xact_start))::text || ' s')
        when p.gid is null then format('the prepared transaction with the number %s',
            coalesce(x.transactionid::text, l.virtualtransaction))
        else format('the prepared transaction %L', p.gid)
    end as writer
from pg_locks l
join pg_class c on c.oid = l.relation
left join pg_stat_activity a on a.pid = l.pid
-- Until the server is started anew it has the name under which it was prepared, so that only a lock tells its number.
left join pg_locks x on l.pid is null and x.locktype = 'transactionid' and x.mode = 'ExclusiveLock' and x.pid is null
    and x.virtualtransaction = l.virtualtransaction
left join pg_prepared_xacts p on p.transaction = x.transactionid
where l.locktype = 'relation' and l.mode = 'RowExclusiveLock' and l.granted
    and l.database = (select oid from pg_database where datname = current_database())
    and c.relnamespace = $1::text::regnamespace
    and (c.relname = 'log' or c.relkind = 'S' and c.relname ~ '^log_shard_[0-9]+_seq$')
