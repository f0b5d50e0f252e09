-- Opens the next segment if the current one is old or full.
--   $1 the age in milliseconds  $2 the rows
select "@schema".log_rotate($1::bigint * interval '1 ms', $2::bigint)
