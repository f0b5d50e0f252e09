-- Applies verdicts to rows that are still held under their token; the ids that come back were settled.
--   ?1 JSON array of [id, token, verdict, version]  ?2 JSON object of failures, by `k` and the id in hexadecimal digits:
--   [error, delay in ms of what waits]
--
-- Sets and lookups rather than a join, which SQLite might begin at the wrong end.
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now),
settled as materialized (
    select /*as id*/ (value ->> 0) /*end*/ as id, value ->> 1 as token, value ->> 2 as verdict, value ->> 3 as version
    from json_each(?1)
)
update "@outbox" as o /*if split_index*/ indexed by "@outbox+id" /*end*/
set "@status" = case
        when "@o.id" in (select id from settled where verdict = 'delivered') then '@delivered'
        when "@o.id" in (select id from settled where verdict = 'dead') then '@dead'
        when "@o.id" in (select id from settled where verdict = 'released') then '@pending'
        else '@waiting' end,
    -- Where the column counts retries it holds those that were scheduled, and a row that is done has no further one.
    "@attempts" = "@o.attempts" - ("@o.id" in (
        select id from settled where verdict in ('released', 'postponed' /*if retries*/, 'delivered', 'dead' /*end*/))),
    /*if next_attempt_at*/ "@next_attempt_at" = coalesce(
        /*as next_attempt_at*/ /*if split_index*/
            -- What waits lies strictly after created_at: that is what marks a row as waiting.
            max((select now from clock) + (?2 -> ('k' || hex("@o.id:text")) ->> 1), "@o.created_at" + 1)
        /*else*/ (select now from clock) + (?2 -> ('k' || hex("@o.id:text")) ->> 1) /*end*/ /*end*/,
        "@o.next_attempt_at"), /*end*/
    /*if locked_by*/ "@locked_by" = null, /*end*/
    /*if locked_until*/ "@locked_until" = null, /*end*/
    /*if locked_at*/ "@locked_at" = null, /*end*/
    /*if last_error*/ "@last_error" = coalesce(?2 -> ('k' || hex("@o.id:text")) ->> 0, "@o.last_error"), /*end*/
    /*if delivered_at*/ "@delivered_at" = case
        when "@o.id" in (select id from settled where verdict = 'delivered')
        then /*as delivered_at*/ (select now from clock) /*end*/ end, /*end*/
    /*if version*/ "@version" = coalesce("@o.version", 0) + 1, /*end*/
    /*if updated_at*/ "@updated_at" = /*as updated_at*/ (select now from clock) /*end*/, /*end*/
    "@lease_token" = null
where "@o.id" in (select id from settled) and ("@o.id", "@o.lease_token:fence") in (select id, token from settled)
    and "@o.status" = '@processing'
    /*if version*/ and ("@o.id" in (select id from settled where version is null)
        or ("@o.id", coalesce("@o.version", 0)) in (select id, version from settled)) /*end*/
returning "@id:text" as id
