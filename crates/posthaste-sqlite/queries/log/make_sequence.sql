-- The same where the sequence was removed, as it is by those who empty a table.
--   ?1 the name of the log's table  ?2 the highest row that was read
insert into sqlite_sequence (name, seq)
select ?1, ?2
where not exists (select 1 from sqlite_sequence where name = ?1)
