-- Applies one change to rows that are still held under their token; the ids that come back were settled. What changes is
-- decided before; null leaves a column as it is.
--   ?1 JSON array of [id, token, version]  ?2 new state  ?3 added to attempts  ?4 wait in ms  ?5 error  ?6 whether delivered
--
-- Sets rather than a join, which SQLite might begin at the wrong end.
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now),
settled as materialized (
    select /*as id*/ (value ->> 0) /*end*/ as id, value ->> 1 as token, value ->> 2 as version
    from json_each(?1)
)
update "@outbox" as o /*if split_index*/ indexed by "@outbox+id" /*end*/
set "@status" = case ?2 when 'pending' then '@pending' when 'waiting' then '@waiting'
        when 'delivered' then '@delivered' when 'dead' then '@dead' else "@o.status" end,
    "@attempts" = coalesce("@o.attempts", 0) + ?3,
    /*if next_attempt_at*/ "@next_attempt_at" = coalesce(
        /*as next_attempt_at*/ /*if split_index*/
            -- What waits lies strictly after created_at: that is what marks a row as waiting.
            max((select now from clock) + ?4, "@o.created_at" + 1)
        /*else*/ (select now from clock) + ?4 /*end*/ /*end*/,
        "@o.next_attempt_at"), /*end*/
    /*if locked_by*/ "@locked_by" = null, /*end*/
    /*if locked_until*/ "@locked_until" = null, /*end*/
    /*if locked_at*/ "@locked_at" = null, /*end*/
    /*if last_error*/ "@last_error" = coalesce(?5, "@o.last_error"), /*end*/
    /*if delivered_at*/ "@delivered_at" = case when ?6 then /*as delivered_at*/ (select now from clock) /*end*/ end, /*end*/
    /*if version*/ "@version" = coalesce("@o.version", 0) + 1, /*end*/
    /*if updated_at*/ "@updated_at" = /*as updated_at*/ (select now from clock) /*end*/, /*end*/
    "@lease_token" = null
where "@o.id" in (select id from settled) and ("@o.id", "@o.lease_token:fence") in (select id, token from settled)
    and "@o.status" = '@processing'
    /*if version*/ and ("@o.id" in (select id from settled where version is null)
        or ("@o.id", coalesce("@o.version", 0)) in (select id, version from settled)) /*end*/
returning "@id:text" as id
