-- $1 a table's quoted name
select
    c.relkind::text as kind,
    array(
        -- An expression has no attribute, and NULL stands in its place.
        select a.attname::text
        from pg_catalog.pg_partitioned_table p
        cross join unnest(p.partattrs::int2[]) with ordinality k (attnum, place)
        left join pg_catalog.pg_attribute a on a.attrelid = p.partrelid and a.attnum = k.attnum and k.attnum > 0
        where p.partrelid = c.oid
        order by k.place
    ) as partitioned_by
from pg_catalog.pg_class c
where c.oid = to_regclass($1)
