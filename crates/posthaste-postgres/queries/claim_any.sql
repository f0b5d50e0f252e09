-- Takes due rows, skipping what others hold; keys are ignored.
--   $1 namespace  $2 max attempts  $3 topics  $4 tenant  $5 limit  $6 max bytes  $7 worker  $8 token  $9 lease in ms
with fresh as (
    select "@id" as id, "@seq" as seq, octet_length("@payload") as bytes
    from "@outbox"
    where "@namespace" = $1 and "@status" = '@pending' and "@next_attempt_at" <= "@created_at"
        and "@attempts" < $2
        and ($3::text[] is null or "@topic" = any ($3))
        and ($4::text is null or "@tenant" = $4)
    order by "@seq"
    limit $5
    for update skip locked
),
due as (
    select "@id" as id, "@seq" as seq, octet_length("@payload") as bytes
    from "@outbox"
    where "@namespace" = $1 and "@status" = '@pending' and "@next_attempt_at" > "@created_at"
        and "@next_attempt_at" <= now()
        and "@attempts" < $2
        and ($3::text[] is null or "@topic" = any ($3))
        and ($4::text is null or "@tenant" = $4)
    order by "@next_attempt_at", "@seq"
    limit $5
    for update skip locked
),
picked as (
    select id
    from (
        select id, bytes, row_number() over by_seq as place, sum(bytes) over by_seq - bytes as bytes_before
        from (select * from fresh union all select * from due) candidates
        window by_seq as (order by seq)
    ) rows
    where place <= $5 and (bytes_before = 0 or bytes_before + bytes <= $6)
)
update "@outbox" o
set "@status" = '@processing', "@attempts" = o."@attempts" + 1, "@locked_by" = $7, "@lease_token" = $8,
    "@locked_until" = now() + $9::bigint * interval '1 millisecond', "@updated_at" = now()
where o."@id" = any (array(select id from picked))
returning o."@seq" as seq, o."@id" as id, o."@namespace" as namespace, o."@topic" as topic,
    o."@ordering_key" as ordering_key,
    /*if tenant*/ o."@tenant" /*else*/ null::text /*end*/ as tenant,
    /*if dedupe_key*/ o."@dedupe_key" /*else*/ null::text /*end*/ as dedupe_key,
    /*if event_type*/ o."@event_type" /*else*/ null::text /*end*/ as event_type,
    /*if source*/ o."@source" /*else*/ null::text /*end*/ as source,
    /*if aggregate_type*/ o."@aggregate_type" /*else*/ null::text /*end*/ as aggregate_type,
    /*if aggregate_id*/ o."@aggregate_id" /*else*/ null::text /*end*/ as aggregate_id,
    /*if content_type*/ o."@content_type" /*else*/ 'application/json' /*end*/ as content_type,
    o."@payload" as payload,
    /*if headers*/ o."@headers" /*else*/ '{}'::jsonb /*end*/ as headers,
    /*if content_hash*/ o."@content_hash" /*else*/ null::bytea /*end*/ as content_hash,
    o."@attempts" as attempts, o."@created_at" as created_at
