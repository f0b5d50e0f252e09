-- Locks rows that are still held under their token, but for those that another transaction has locked.
--   $1 ids  $2 tokens
select "@o.id:text" as id
from "@outbox" o
join unnest($1::text[]::/*type id*/ uuid /*end*/[], $2::text[]) as s (id, token)
    on "@o.id" = s.id and "@o.lease_token:fence" = s.token
where "@o.status" = '@processing'
order by "@o.id"
for update of o skip locked
