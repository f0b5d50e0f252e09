-- Locks them, unless somebody else has them or they are no longer dead.
--   $1 ids
select "@o.id:text" as id
from "@outbox" o
where "@o.id" in ($1) and "@o.status" = '@dead'
order by "@o.order"
for update skip locked
