-- Finds rows that are still held under a token, locked or not.
--   $1 ids  $2 token
select "@o.id:text" as id, "@o.version:int" as version
from "@outbox" o
where "@o.id" in ($1) and "@o.lease_token:fence" = $2 and "@o.status" = '@processing'
