-- Sets the sequence above what was read. No row is there that was not read: such ones are refused.
--   ?1 the name of the log's table  ?2 the highest row that was read
update sqlite_sequence set seq = ?2 where name = ?1 and seq < ?2
