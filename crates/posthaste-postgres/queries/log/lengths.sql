-- Columns that are shorter than what is copied into them.
--   $1 the log's table  $2 the table of failures  $3 columns of the log  $4 columns of the table of failures
select c.failed_column, t.attname as log_column,
    case when f.atttypmod > 4 then f.atttypmod - 4 end as failed_length,
    case when t.atttypid in ('varchar'::regtype, 'bpchar'::regtype) and t.atttypmod > 4 then t.atttypmod - 4 end as log_length
from unnest($3::text[], $4::text[]) as c (log_column, failed_column)
join pg_attribute f on f.attrelid = $2::text::regclass and f.attname = c.failed_column
left join pg_attribute t on t.attrelid = $1::text::regclass and t.attname = c.log_column
where f.atttypid in ('varchar'::regtype, 'bpchar'::regtype) and f.atttypmod > 4
order by 1
