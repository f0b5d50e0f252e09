-- Gives up rows that have used all their attempts without a verdict.
with exhausted as materialized (
    select "@id" as id
    from "@outbox"
    where "@namespace" = $1 and "@status" = '@processing' and "@locked_until" < now() and "@attempts" >= $2
        and ($3::text[] is null or "@topic" = any ($3))
        and ($4::text is null or "@tenant" = $4)
    union all
    select "@id"
    from "@outbox"
    where "@namespace" = $1 and "@status" = '@pending' and "@next_attempt_at" > "@created_at" and "@attempts" >= $2
        and ($3::text[] is null or "@topic" = any ($3))
        and ($4::text is null or "@tenant" = $4)
    union all
    -- Given back by a second worker after the first one vanished: fresh, but tried.
    select "@id"
    from "@outbox"
    where "@namespace" = $1 and "@status" = '@pending' and "@next_attempt_at" <= "@created_at" and "@attempts" > 0
        and "@attempts" >= $2
        and ($3::text[] is null or "@topic" = any ($3))
        and ($4::text is null or "@tenant" = $4)
),
locked as materialized (
    select "@id" as id
    from "@outbox"
    where "@id" = any (array(select id from exhausted)) and "@attempts" >= $2
        and ("@status" = '@pending' or ("@status" = '@processing' and "@locked_until" < now()))
    for update skip locked
)
update "@outbox"
set "@status" = '@dead', "@locked_by" = null, "@lease_token" = null, "@locked_until" = null,
    "@last_error" = coalesce("@last_error", $5), "@updated_at" = now()
where "@id" = any (array(select id from locked))
returning "@id" as id
