-- $1 a table's quoted name
select
    a.attname::text as name,
    case t.typtype
        when 'e' then 'enum ' || t.typname
        else format_type(coalesce(nullif(t.typbasetype, 0), t.oid), null)
    end as type_name,
    not a.attnotnull as nullable,
    pg_get_expr(d.adbin, d.adrelid) as "default",
    -- Four bytes of the modifier are the length of a header.
    case when t.typname in ('varchar', 'bpchar') and a.atttypmod > 4 then a.atttypmod - 4 end as max_length,
    a.attidentity <> '' or a.attgenerated <> '' as generated,
    array(select e.enumlabel::text from pg_catalog.pg_enum e where e.enumtypid = t.oid order by e.enumsortorder) as labels,
    array(
        select pg_get_constraintdef(c.oid)
        from pg_catalog.pg_constraint c
        where c.conrelid = a.attrelid and c.contype = 'c' and c.conkey = array[a.attnum]
    ) as checks
from pg_catalog.pg_attribute a
join pg_catalog.pg_type t on t.oid = a.atttypid
left join pg_catalog.pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
where a.attrelid = to_regclass($1) and a.attnum > 0 and not a.attisdropped
order by a.attnum
