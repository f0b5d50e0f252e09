-- $1 a table's quoted name
-- One that is not valid serves nothing and has no columns here, but its name is taken.
select
    c.relname::text as name,
    i.indisunique and i.indisvalid as is_unique,
    i.indpred is not null as is_partial,
    i.indisprimary and i.indisvalid as is_primary,
    array(
        -- An expression has no attribute, and NULL stands in its place.
        select a.attname::text
        from unnest(i.indkey::int2[]) with ordinality k (attnum, place)
        left join pg_catalog.pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum and k.attnum > 0
        where k.place <= i.indnkeyatts and i.indisvalid
        order by k.place
    ) as columns
from pg_catalog.pg_index i
join pg_catalog.pg_class c on c.oid = i.indexrelid
where i.indrelid = to_regclass($1)
order by c.relname
