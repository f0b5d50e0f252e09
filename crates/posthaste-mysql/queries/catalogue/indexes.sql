-- A schema or NULL, and a table. One row per column; an expression has no name, and a prefix is not the column.
select
    cast(s.index_name as char) as index_name,
    s.non_unique = 0 as is_unique,
    s.index_name = 'PRIMARY' as is_primary,
    if(s.sub_part is null, cast(s.column_name as char), null) as column_name
from information_schema.statistics s
where s.table_schema = coalesce(?, database()) and s.table_name = ?
order by s.index_name, s.seq_in_index
