-- Locks them, unless they are no longer dead. Not past a row that is locked: later ones of its key would come before it.
--   $1 ids
select "@o.id:text" as id
from "@outbox" o
where "@o.id" in ($1) and "@o.status" = '@dead'
order by "@o.order"
for update nowait
