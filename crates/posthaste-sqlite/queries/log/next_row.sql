-- The first row of the log beyond one.
--   ?1 that one
select min(seq) from "@outbox" where seq > ?1
