-- A schema or NULL, and a table.
select cast(c.check_clause as char) as check_clause
from information_schema.check_constraints c
join information_schema.table_constraints t
    on t.constraint_schema = c.constraint_schema and t.constraint_name = c.constraint_name
where t.table_schema = coalesce(?, database()) and t.table_name = ? and t.constraint_type = 'CHECK'
