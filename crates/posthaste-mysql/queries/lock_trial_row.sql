-- Locks them, unless another transaction has them.
--   $1 ids
select "@o.id:text" as id from "@outbox" o where "@o.id" in ($1) and "@o.status" in ('@open') for update skip locked
