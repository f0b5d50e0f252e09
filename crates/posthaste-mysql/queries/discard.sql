-- Removes locked dead rows for good.
--   $1 ids
delete from "@outbox" where "@id" in ($1)
