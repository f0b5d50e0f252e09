-- How many rows the segments have that may be dropped.
--   $1 how long they were settled, in milliseconds
select coalesce(sum(row_count), 0)::bigint from "@schema".log_old_segments($1::bigint * interval '1 ms')
