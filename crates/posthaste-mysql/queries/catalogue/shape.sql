-- A schema or NULL, and a table: what its rows are partitioned by, if they are. MySQL has such a row for every table.
select distinct
    t.table_type = 'VIEW' as is_view,
    cast(case when p.partition_method is null then null else coalesce(p.partition_expression, '') end as char) as expression
from information_schema.tables t
left join information_schema.partitions p on p.table_schema = t.table_schema and p.table_name = t.table_name
where t.table_schema = coalesce(?, database()) and t.table_name = ?
