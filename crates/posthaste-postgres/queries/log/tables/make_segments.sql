-- Makes segments ahead.
--   $1 how many
select "@schema".log_make_segments($1::integer)
