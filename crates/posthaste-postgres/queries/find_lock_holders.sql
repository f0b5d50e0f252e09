-- Says who has locked rows: a row that is locked has the number of the transaction, which holds a lock on that number.
--   $1 ids
select "@o.id:text" as id, 'session ' || l.pid || coalesce(' (' || nullif(a.application_name, '') || ')', '') as holder
from "@outbox" o
join pg_locks l on l.locktype = 'transactionid' and l.transactionid = o.xmax and l.granted and l.mode = 'ExclusiveLock'
left join pg_stat_activity a on a.pid = l.pid
where "@o.id" = any ($1::text[]::/*type id*/ uuid /*end*/[])
