-- What the table says of one column alone, as a condition on it. $1 the table's quoted name  $2 the column's name
select c.conname::text as name, pg_get_expr(c.conbin, c.conrelid) as condition,
    format_type(a.atttypid, a.atttypmod) as type_name
from pg_catalog.pg_constraint c
join pg_catalog.pg_attribute a on a.attrelid = c.conrelid and a.attname = $2 and c.conkey = array[a.attnum]
where c.conrelid = to_regclass($1) and c.contype = 'c'
order by c.conname
