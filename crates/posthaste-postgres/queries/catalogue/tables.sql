-- $1 a schema, or NULL for the tables that can be named without one
select c.relname::text as name
from pg_catalog.pg_class c
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where c.relkind in ('r', 'p')
    and case
        when $1::text is null then pg_table_is_visible(c.oid) and n.nspname not in ('pg_catalog', 'information_schema')
        else n.nspname = $1
    end
order by c.relname
