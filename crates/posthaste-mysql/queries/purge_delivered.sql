-- Removes them.
--   $1 ids
delete from "@outbox" where "@id" in ($1) and "@status" = '@delivered'
