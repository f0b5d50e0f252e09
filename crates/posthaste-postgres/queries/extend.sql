-- Prolongs leases that are still held under the token. Where a table only says since when a row is held, that is now.
--   $1 ids  $2 token  $3 lease in ms
update "@outbox" o
set /*if locked_until*/ "@locked_until" = /*as locked_until*/ now() + $3::bigint * interval '1 millisecond' /*end*/
    /*else*/ "@locked_at" = case when $3::bigint > 0 then /*as locked_at*/ now() /*end*/ else o."@locked_at" end /*end*/
    /*if updated_at*/ , "@updated_at" = /*as updated_at*/ now() /*end*/ /*end*/
where "@o.id" = any ($1::text[]::/*type id*/ uuid /*end*/[]) and "@o.lease_token:fence" = $2
    and "@o.status" = '@processing'
returning "@o.id:text" as id
