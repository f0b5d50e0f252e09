-- Removes the rows of the log whose dead letters were removed for good, by an operator or by retention.
--   ?1 ids
delete from "@outbox" where id in (select value from json_each(?1))
