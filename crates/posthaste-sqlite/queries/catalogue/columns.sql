-- ?1 a table
select
    name,
    type as type_name,
    "notnull" = 0 as nullable,
    dflt_value as "default",
    -- Computed, or another name for the row's own number.
    hidden in (2, 3)
        or (lower(type) = 'integer' and pk = 1 and not exists (select 1 from pragma_table_xinfo(?1) other where other.pk > 1))
        as generated,
    pk
from pragma_table_xinfo(?1)
where hidden <> 1
order by cid
