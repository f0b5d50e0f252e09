-- The segments that may be dropped.
--   $1 how long they were settled, in milliseconds
select segment, row_count, is_attached, is_pending from "@schema".log_old_segments($1::bigint * interval '1 ms')
