-- A schema or NULL.
select cast(table_name as char) as name
from information_schema.tables
where table_schema = coalesce(?, database()) and table_type = 'BASE TABLE'
order by table_name
