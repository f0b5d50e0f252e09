-- Finds rows that are still held under their token, locked or not.
--   $1 ids  $2 tokens  $3 versions
select "@o.id:text" as id
from "@outbox" o
join unnest($1::text[]::/*type id*/ uuid /*end*/[], $2::text[], $3::bigint[]) as s (id, token, version)
    on "@o.id" = s.id and "@o.lease_token:fence" = s.token
where "@o.status" = '@processing'
    /*if version*/ and (s.version is null or coalesce("@o.version", 0) = s.version) /*end*/
