-- Whether there is a table for the state of readers, which this user may write; and by what name it knows this log.
--   $1 the cursor's table  $2 the log's table  $3 the table of readers  $4 its schema
select n.nspname || '.' || c.relname as log, $2::text::regclass::oid::text || ' ' || c.oid::text as tables,
    r.oid is not null as exists,
    coalesce(
        has_schema_privilege(r.relnamespace, 'usage') and has_table_privilege(r.oid, 'select')
            /*if shard*/ /*else*/ and has_table_privilege(r.oid, 'insert') /*end*/
            and has_table_privilege(r.oid, 'update'),
        false
    ) as usable,
    exists (
        select from pg_attribute a where a.attrelid = r.oid and a.attname = 'handed_out' and not a.attisdropped
    ) as counts_crashes
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
left join (pg_class r join pg_namespace s on s.oid = r.relnamespace and s.nspname = $4) on r.relname = $3
where c.oid = $1::text::regclass
