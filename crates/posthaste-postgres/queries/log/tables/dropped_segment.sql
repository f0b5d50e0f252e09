-- Takes note that a segment is gone.
--   $1 the segment
update "@schema".log_segments set dropped_at = clock_timestamp() where segment = $1::bigint
