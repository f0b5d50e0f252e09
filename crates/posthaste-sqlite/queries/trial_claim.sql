-- Claims rows: to try verdicts on them, or to find out whose claim is refused. It is rolled back.
--   ?1 ids as a JSON array  ?2 worker  ?3 fence  ?4 lease in ms
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now)
update "@outbox" as o /*if split_index*/ indexed by "@outbox+id" /*end*/
set "@status" = '@processing', "@attempts" = coalesce("@attempts", 0) + 1,
    /*if locked_by*/ "@locked_by" = ?2, /*end*/
    /*if locked_until*/ "@locked_until" = /*as locked_until*/ (select now from clock) + ?4 /*end*/, /*end*/
    /*if locked_at*/ "@locked_at" = /*as locked_at*/ (select now from clock) /*end*/, /*end*/
    /*if version*/ "@version" = coalesce("@version:int", 0) + 1, /*end*/
    /*if updated_at*/ "@updated_at" = /*as updated_at*/ (select now from clock) /*end*/, /*end*/
    "@lease_token" = ?3
where "@o.id" in (select /*as id*/ value /*end*/ from json_each(?1)) and ?2 is not null and ?4 is not null
returning "@id:text" as id
