-- Prolongs leases that are still held under the token.
--   ?1 ids  ?2 token  ?3 lease in ms
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now)
update "@outbox" indexed by "@outbox+id"
set "@locked_until" = (select now from clock) + ?3, "@updated_at" = (select now from clock)
where "@id" in (select value from json_each(?1)) and "@lease_token" = ?2 and "@status" = '@processing'
returning "@id" as id
