-- The highest number that was given out.
--   ?1 the name of the log's table
select coalesce((select max(seq) from sqlite_sequence where name = ?1), 0) as last
