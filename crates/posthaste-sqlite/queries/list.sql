-- Rows as an operator sees them. Parameters are numbered as in find.sql, which takes ids.
--   ?1 namespace  ?2 status  ?3 topic  ?4 ordering key  ?5 tenant  ?7 after the row with this id  ?8 limit
select
    "@seq" as seq, "@id" as id, "@namespace" as namespace, "@topic" as topic, "@ordering_key" as ordering_key,
    /*if tenant*/ "@tenant" /*else*/ null /*end*/ as tenant,
    /*if dedupe_key*/ "@dedupe_key" /*else*/ null /*end*/ as dedupe_key,
    /*if event_type*/ "@event_type" /*else*/ null /*end*/ as event_type,
    /*if source*/ "@source" /*else*/ null /*end*/ as source,
    /*if aggregate_type*/ "@aggregate_type" /*else*/ null /*end*/ as aggregate_type,
    /*if aggregate_id*/ "@aggregate_id" /*else*/ null /*end*/ as aggregate_id,
    /*if content_type*/ "@content_type" /*else*/ 'application/json' /*end*/ as content_type,
    "@payload" as payload,
    /*if headers*/ "@headers" /*else*/ '{}' /*end*/ as headers,
    "@status" as status, "@attempts" as attempts, "@next_attempt_at" as next_attempt_at, "@locked_by" as locked_by,
    "@locked_until" as locked_until, "@last_error" as last_error, "@created_at" as created_at,
    "@updated_at" as updated_at,
    /*if delivered_at*/ "@delivered_at" /*else*/ null /*end*/ as delivered_at
from "@outbox"
where (?1 is null or "@namespace" = ?1)
    and (?2 is null or "@status" = ?2)
    and (?3 is null or "@topic" = ?3)
    and (?4 is null or "@ordering_key" = ?4)
    and (?5 is null or "@tenant" = ?5)
    and "@seq" > case when ?7 is null then 0 else (select "@seq" from "@outbox" where "@id" = ?7) end
order by "@seq"
limit ?8
