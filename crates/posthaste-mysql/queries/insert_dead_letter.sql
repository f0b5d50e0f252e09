-- Copies rows that died to the dead-letter table, in the transaction in which they did.
--   $1 ids
insert into "@dead_letter" ("@dead_letter/*")
select "@o.dead_letter:values"
from "@outbox" o
where "@o.id" in ($1)
