-- Applies verdicts to rows that are still held under their token; the ids that come back were settled.
--   ?1 JSON array of [id, token, verdict]  ?2 JSON object of failures, id: [error, delay in ms of what waits]
--
-- Sets and lookups rather than a join, which SQLite might begin at the wrong end.
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now),
settled as materialized (
    select value ->> 0 as id, value ->> 1 as token, value ->> 2 as verdict from json_each(?1)
)
update "@outbox" as o indexed by "@outbox+id"
set "@status" = case
        when o."@id" in (select id from settled where verdict = 'delivered') then '@delivered'
        when o."@id" in (select id from settled where verdict = 'dead') then '@dead'
        else '@pending' end,
    "@attempts" = o."@attempts" - (o."@id" in (select id from settled where verdict in ('released', 'postponed'))),
    -- What waits lies strictly after created_at: that is what marks a row as waiting.
    "@next_attempt_at" = coalesce(
        max((select now from clock) + (?2 -> o."@id" ->> 1), o."@created_at" + 1), o."@next_attempt_at"),
    "@locked_by" = null, "@lease_token" = null, "@locked_until" = null,
    "@last_error" = coalesce(?2 -> o."@id" ->> 0, o."@last_error"),
    /*if delivered_at*/ "@delivered_at" = case
        when o."@id" in (select id from settled where verdict = 'delivered') then (select now from clock) end, /*end*/
    "@updated_at" = (select now from clock)
where o."@id" in (select id from settled) and (o."@id", o."@lease_token") in (select id, token from settled)
    and o."@status" = '@processing'
returning "@id" as id
