-- Locks it, unless somebody else has it.
--   $1 id
select "@o.id:text" as id from "@outbox" o where "@o.id" in ($1) and "@o.status" in ('@open') for update skip locked
