-- Applies verdicts to rows that are still held under their token; the ids that come back were settled.
--   ?1 JSON array of [id, token, verdict, delay in ms of a retry, error of a failure]
--
-- No join: SQLite might begin it at the wrong end. Ids are looked up in sets; only failures have more to say.
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now),
settled as materialized (
    select value ->> 0 as id, value ->> 1 as token, value ->> 2 as verdict, value ->> 3 as delay_ms, value ->> 4 as error
    from json_each(?1)
),
failed as materialized (select id, delay_ms, error from settled where error is not null)
update "@outbox" as o indexed by "@outbox+id"
set "@status" = case
        when o."@id" in (select id from settled where verdict = 'delivered') then '@delivered'
        when o."@id" in (select id from settled where verdict = 'dead') then '@dead'
        else '@pending' end,
    "@attempts" = o."@attempts" - (o."@id" in (select id from settled where verdict = 'released')),
    -- A retry lies strictly after created_at: that is what marks a row as waiting.
    "@next_attempt_at" = coalesce(
        (select max((select now from clock) + delay_ms, o."@created_at" + 1) from failed where failed.id = o."@id"),
        o."@next_attempt_at"),
    "@locked_by" = null, "@lease_token" = null, "@locked_until" = null,
    "@last_error" = coalesce((select error from failed where failed.id = o."@id"), o."@last_error"),
    /*if delivered_at*/ "@delivered_at" = case
        when o."@id" in (select id from settled where verdict = 'delivered') then (select now from clock) end, /*end*/
    "@updated_at" = (select now from clock)
where o."@id" in (select id from settled) and (o."@id", o."@lease_token") in (select id, token from settled)
    and o."@status" = '@processing'
returning "@id" as id
