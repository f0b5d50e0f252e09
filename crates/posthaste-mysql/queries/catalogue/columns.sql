-- A schema or NULL, and a table. The casts make MySQL and MariaDB answer with the same types.
select
    cast(c.column_name as char) as name,
    lower(cast(c.data_type as char)) as type_name,
    c.is_nullable = 'YES' as nullable,
    cast(c.column_default as char) as column_default,
    cast(c.character_maximum_length as signed) as max_length,
    c.extra like '%auto_increment%' or c.generation_expression <> '' as is_generated,
    cast(c.column_type as char) as column_type
from information_schema.columns c
where c.table_schema = coalesce(?, database()) and c.table_name = ?
order by c.ordinal_position
