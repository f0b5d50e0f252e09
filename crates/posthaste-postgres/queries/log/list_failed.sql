-- Rows of the table of failures as an operator sees them.
--   $1 beginning after this id  $2 events; all rows if null  $3 rows beside these  $4 limit
select "@f.failed/id:int"::bigint as id, "@f.failed/log_id:int"::bigint as log_id, "@f.failed/event_id:text" as event_id,
    /*if ordering_key*/
        /*if failed/ordering_key*/ "@f.failed/ordering_key:text" /*else*/ "@f.failed/aggregate_id:text" /*end*/
    /*else*/ null::text /*end*/ as ordering_key,
    "@f.failed/tenant:text" as tenant, "@f.failed/event_type:text" as event_type, "@f.failed/source:text" as source,
    "@f.failed/aggregate_type:text" as aggregate_type, "@f.failed/aggregate_id:text" as aggregate_id,
    "@f.failed/topic:text" as topic, "@f.failed/content_type:text" as content_type, "@f.failed/payload:bytes" as payload,
    "@f.failed/headers:bytes" as headers,
    /*if failed/created_at*/ "@f.failed/created_at:time" /*else*/ now() /*end*/ as created_at,
    "@f.failed/attempts:int"::bigint as attempts, "@f.failed/last_error:text" as last_error,
    "@f.failed/next_attempt_at:time" as next_attempt_at,
    /*if failed/died_at*/ "@f.failed/died_at" is not null /*else*/ null::boolean /*end*/ as dead,
    /*if failed/died_at*/ "@f.failed/died_at:time" /*else*/ null::timestamptz /*end*/ as died_at
    /*if shard*/ , exists (
        select from "@failed" e where "@e.failed/event_id" = "@f.failed/event_id" and "@e.failed/id" <> "@f.failed/id"
    ) as shares_event /*end*/
from "@failed" f
where "@f.failed/id" > $1
    and ($2::text[] is null or "@f.failed/id" = any ($3::bigint[])
        or /*if shard*/ "@f.failed/event_id" = any ($2::uuid[]) /*else*/ "@f.failed/event_id:text" = any ($2) /*end*/)
order by "@f.failed/id"
limit $4
