-- Prolongs leases that are still held under the token. A version stays as it is: the claim goes on.
--   ?1 ids  ?2 token  ?3 lease in ms
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now)
update "@outbox" /*if split_index*/ indexed by "@outbox+id" /*end*/
set
    /*if locked_until*/ "@locked_until" = /*as locked_until*/ (select now from clock) + ?3 /*end*/, /*end*/
    /*if locked_at*/ "@locked_at" = /*as locked_at*/ (select now from clock) /*end*/, /*end*/
    /*if updated_at*/ "@updated_at" = /*as updated_at*/ (select now from clock) /*end*/, /*end*/
    "@lease_token" = "@lease_token"
where "@id" in (select /*as id*/ value /*end*/ from json_each(?1)) and "@lease_token:fence" = ?2
    and "@status" = '@processing'
returning "@id:text" as id
