-- Applies verdicts to rows that are still held under their token; the ids that come back were settled.
--   ?1 JSON array of [id, token, verdict, delay in ms, error]
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now)
update "@outbox" as o
set "@status" = case s.verdict
        when 'delivered' then '@delivered' when 'dead' then '@dead' else '@pending' end,
    "@attempts" = o."@attempts" - (s.verdict = 'released'),
    -- A retry lies strictly after created_at: that is what marks a row as waiting.
    "@next_attempt_at" = case when s.verdict = 'retry'
        then max((select now from clock) + s.delay_ms, o."@created_at" + 1)
        else o."@next_attempt_at" end,
    "@locked_by" = null, "@lease_token" = null, "@locked_until" = null,
    "@last_error" = coalesce(s.error, o."@last_error"),
    /*if delivered_at*/ "@delivered_at" = case when s.verdict = 'delivered' then (select now from clock) end, /*end*/
    "@updated_at" = (select now from clock)
from (
    select value ->> 0 as id, value ->> 1 as token, value ->> 2 as verdict, value ->> 3 as delay_ms, value ->> 4 as error
    from json_each(?1)
) s
-- The plus keeps the planner on the index of ids, also where statistics say that little is leased.
where o."@id" = s.id and o."@lease_token" = s.token and +o."@status" = '@processing'
returning "@id" as id
