-- Locks a dead row, so that its letter is not written twice.
--   $1 id
select "@o.id:text" as id
from "@outbox" o
where "@o.id" = $1::text::/*type id*/ uuid /*end*/ and "@o.status" = '@dead'
for update
