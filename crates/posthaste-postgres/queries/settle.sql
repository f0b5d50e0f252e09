-- Applies verdicts to rows that are still held under their token; the ids that come back were settled.
update "@outbox" o
set "@status" = case s.verdict
        when 'delivered' then '@delivered' when 'dead' then '@dead' else '@pending' end,
    "@attempts" = o."@attempts" - case when s.verdict in ('released', 'postponed') then 1 else 0 end,
    -- What waits lies strictly after created_at: that is what marks a row as waiting.
    "@next_attempt_at" = case when s.verdict in ('retry', 'postponed')
        then greatest(now() + s.delay_ms * interval '1 millisecond', o."@created_at" + interval '1 microsecond')
        else o."@next_attempt_at" end,
    "@locked_by" = null, "@lease_token" = null, "@locked_until" = null,
    "@last_error" = coalesce(s.error, o."@last_error"),
    /*if delivered_at*/ "@delivered_at" = case when s.verdict = 'delivered' then now() end, /*end*/
    "@updated_at" = now()
from unnest($1::uuid[], $2::uuid[], $3::text[], $4::bigint[], $5::text[]) as s (id, token, verdict, delay_ms, error)
where o."@id" = s.id and o."@lease_token" = s.token and o."@status" = '@processing'
returning o."@id" as id
