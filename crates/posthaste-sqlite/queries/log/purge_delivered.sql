-- Removes settled rows of the log past their retention.
--   ?1 their numbers
delete from "@outbox" as o
where o.seq in (select value from json_each(?1)) and not exists (select 1 from "@failed" f where f.id = o.id)
