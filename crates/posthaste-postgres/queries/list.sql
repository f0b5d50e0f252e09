-- Rows as an operator sees them.
select
    "@seq" as seq, "@id" as id, "@namespace" as namespace, "@topic" as topic, "@ordering_key" as ordering_key,
    /*if tenant*/ "@tenant" /*else*/ null::text /*end*/ as tenant,
    /*if dedupe_key*/ "@dedupe_key" /*else*/ null::text /*end*/ as dedupe_key,
    /*if event_type*/ "@event_type" /*else*/ null::text /*end*/ as event_type,
    /*if source*/ "@source" /*else*/ null::text /*end*/ as source,
    /*if aggregate_type*/ "@aggregate_type" /*else*/ null::text /*end*/ as aggregate_type,
    /*if aggregate_id*/ "@aggregate_id" /*else*/ null::text /*end*/ as aggregate_id,
    /*if content_type*/ "@content_type" /*else*/ 'application/json' /*end*/ as content_type,
    "@payload" as payload,
    /*if headers*/ "@headers" /*else*/ '{}'::jsonb /*end*/ as headers,
    "@status" as status, "@attempts" as attempts, "@next_attempt_at" as next_attempt_at, "@locked_by" as locked_by,
    "@locked_until" as locked_until, "@last_error" as last_error, "@created_at" as created_at,
    "@updated_at" as updated_at,
    /*if delivered_at*/ "@delivered_at" /*else*/ null::timestamptz /*end*/ as delivered_at
from "@outbox"
where ($1::text is null or "@namespace" = $1)
    and ($2::text is null or "@status" = $2)
    and ($3::text is null or "@topic" = $3)
    and ($4::text is null or "@ordering_key" = $4)
    and ($5::text is null or "@tenant" = $5)
    and ($6::uuid[] is null or "@id" = any ($6))
    and ($7::uuid is null or "@seq" > (select "@seq" from "@outbox" where "@id" = $7))
order by "@seq"
limit $8
