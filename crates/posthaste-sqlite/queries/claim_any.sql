-- Takes due rows; keys are ignored.
--   ?1 namespace  ?2 max attempts  ?3 topics  ?4 tenant  ?5 limit  ?6 max bytes  ?7 worker  ?8 token  ?9 lease in ms
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now),
fresh as (
    select "@seq" as seq, "@id" as id, octet_length("@payload") as bytes
    from "@outbox" indexed by "@outbox+fresh"
    where "@namespace" = ?1 and "@status" = '@pending' and "@next_attempt_at" <= "@created_at"
        and "@attempts" < ?2
        and (?3 is null or "@topic" in (select value from json_each(?3)))
        and (?4 is null or "@tenant" = ?4)
    order by "@seq"
    limit ?5
),
due as (
    select "@seq" as seq, "@id" as id, octet_length("@payload") as bytes
    from "@outbox" indexed by "@outbox+waiting"
    where "@namespace" = ?1 and "@status" = '@pending' and "@next_attempt_at" > "@created_at"
        and "@next_attempt_at" <= (select now from clock)
        and "@attempts" < ?2
        and (?3 is null or "@topic" in (select value from json_each(?3)))
        and (?4 is null or "@tenant" = ?4)
    order by "@next_attempt_at", "@seq"
    limit ?5
),
picked as (
    select id
    from (
        select id, row_number() over by_seq as place, sum(bytes) over by_seq as bytes_so_far
        from (select * from fresh union all select * from due)
        window by_seq as (order by seq)
    )
    where place = 1 or (place <= ?5 and bytes_so_far <= ?6)
)
update "@outbox" indexed by "@outbox+id"
set "@status" = '@processing', "@attempts" = "@attempts" + 1, "@locked_by" = ?7, "@lease_token" = ?8,
    "@locked_until" = (select now from clock) + ?9, "@updated_at" = (select now from clock)
where "@id" in (select id from picked)
returning "@seq" as seq, "@id" as id, "@namespace" as namespace, "@topic" as topic, "@ordering_key" as ordering_key,
    /*if tenant*/ "@tenant" /*else*/ null /*end*/ as tenant,
    /*if dedupe_key*/ "@dedupe_key" /*else*/ null /*end*/ as dedupe_key,
    /*if event_type*/ "@event_type" /*else*/ null /*end*/ as event_type,
    /*if source*/ "@source" /*else*/ null /*end*/ as source,
    /*if aggregate_type*/ "@aggregate_type" /*else*/ null /*end*/ as aggregate_type,
    /*if aggregate_id*/ "@aggregate_id" /*else*/ null /*end*/ as aggregate_id,
    /*if content_type*/ "@content_type" /*else*/ 'application/json' /*end*/ as content_type,
    "@payload" as payload,
    /*if headers*/ "@headers" /*else*/ '{}' /*end*/ as headers,
    /*if content_hash*/ "@content_hash" /*else*/ null /*end*/ as content_hash,
    "@attempts" as attempts, "@created_at" as created_at
