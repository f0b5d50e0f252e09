-- Writes rows of the log to the table of failures, in the log's order; one that is there already is left as it is.
--   $1 ids  $2 retries so far  $3 errors  $4 waits in ms  $5 whether they are given up
--   $6 the shard and $7 the first segment, where there are shards
insert into "@failed" (
    "@failed/event_id", "@failed/payload", "@failed/attempts", "@failed/next_attempt_at"
    /*if failed/event_type*/ , "@failed/event_type" /*end*/
    /*if failed/source*/ , "@failed/source" /*end*/
    /*if failed/aggregate_type*/ , "@failed/aggregate_type" /*end*/
    /*if failed/aggregate_id*/ , "@failed/aggregate_id" /*end*/
    /*if failed/ordering_key*/ , "@failed/ordering_key" /*end*/
    /*if failed/tenant*/ , "@failed/tenant" /*end*/
    /*if failed/headers*/ , "@failed/headers" /*end*/
    /*if failed/shard*/ , "@failed/shard" /*end*/
    /*if topic and failed/topic*/ , "@failed/topic" /*end*/
    /*if content_type and failed/content_type*/ , "@failed/content_type" /*end*/
    /*if failed/died_at*/ , "@failed/died_at" /*end*/
    /*if failed/log_id*/ , "@failed/log_id" /*end*/
    /*if failed/last_error*/ , "@failed/last_error" /*end*/
    /*if failed/created_at*/ , "@failed/created_at" /*end*/
)
select
    /*if event_id*/ "@o.event_id" /*else*/ "@o.id" /*end*/, "@o.payload", n.retries,
    /*as failed/next_attempt_at*/ now() + n.delay_ms * interval '1 millisecond' /*end*/
    /*if failed/event_type*/ , "@o.event_type" /*end*/
    /*if failed/source*/ , "@o.source" /*end*/
    /*if failed/aggregate_type*/ , "@o.aggregate_type" /*end*/
    /*if failed/aggregate_id*/ , "@o.aggregate_id" /*end*/
    /*if failed/ordering_key*/ , "@o.ordering_key" /*end*/
    /*if failed/tenant*/ , "@o.tenant" /*end*/
    /*if failed/headers*/ , "@o.headers" /*end*/
    /*if failed/shard*/ , "@o.shard" /*end*/
    /*if topic and failed/topic*/ , "@o.topic" /*end*/
    /*if content_type and failed/content_type*/ , "@o.content_type" /*end*/
    /*if failed/died_at*/ , /*as failed/died_at*/ case when n.dead then now() end /*end*/ /*end*/
    /*if failed/log_id*/ , "@o.id" /*end*/
    /*if failed/last_error*/ , n.error /*end*/
    /*if failed/created_at*/ , /*if shard*/ "@o.created_at" /*else*/ /*as failed/created_at*/ now() /*end*/ /*end*/ /*end*/
from unnest($1::bigint[], $2::bigint[], $3::text[], $4::bigint[], $5::boolean[]) as n (id, retries, error, delay_ms, dead)
join "@outbox" o on "@o.id" = n.id /*if shard*/ and "@o.shard" = $6::integer and o.segment >= $7 /*end*/
-- Triggers may ask for locks, which are not waited for for long.
where (select set_config('lock_timeout', '1s', true)) is not null and not exists (
    select from "@failed" f
    /*if shard*/ where "@f.failed/shard" = "@o.shard" and "@f.failed/log_id" = "@o.id"
    /*else*/
    where "@f.failed/event_id:text" = /*if event_id*/ "@o.event_id:text" /*else*/ "@o.id:text" /*end*/
        /*if failed/log_id*/ and coalesce("@f.failed/log_id", "@o.id") = "@o.id" /*end*/
    /*end*/
)
order by n.id
returning "@failed/id:int"::bigint as id
