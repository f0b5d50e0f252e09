-- Takes rows in the table's order, skipping what others hold; keys are ignored.
--   $1 namespace  $2 max attempts  $3 topics  $4 tenant  $5 limit  $6 max bytes  $7 proof of the claim  $8 lease in ms
--   $9 whether rows of vanished workers are wanted, and else pending ones  $10 rows that are left out
--   $11 worker, where the table says who has a row
with pending as (
    select "@o.id" as id, "@o.order:as", coalesce(octet_length("@o.payload:bytes"), 0) as bytes
    from "@outbox" o
    where not $9::boolean and "@o.status" in ('@open')
        /*if next_attempt_at*/ and ("@o.next_attempt_at" is null
            or "@o.next_attempt_at" <= /*as next_attempt_at*/ now() /*end*/) /*end*/
        and coalesce("@o.attempts", 0) < /*if max_attempts*/ coalesce("@o.max_attempts" /*if retries*/ + 1 /*end*/, $2::integer)
            /*else*/ $2::integer /*end*/
        and "@o.id" not in (select unnest($10::text[]::/*type id*/ uuid /*end*/[]))
        and /*if namespace*/ "@o.namespace:text" = $1 /*else*/ $1::text is not null /*end*/
        and /*if topic*/ ($3::text[] is null or "@o.topic:text" = any ($3)) /*else*/ $3::text[] is null /*end*/
        and /*if tenant*/ ($4::text is null or "@o.tenant:text" = $4) /*else*/ $4::text is null /*end*/
    order by "@o.order"
    limit $5
    for update skip locked
),
/*if locked_until*/
expired as (
    select "@o.id" as id, "@o.order:as", coalesce(octet_length("@o.payload:bytes"), 0) as bytes
    from "@outbox" o
    where $9 and "@o.status" = '@processing'
        and ("@o.locked_until" is null or "@o.locked_until" < /*as locked_until*/ now() /*end*/)
        and coalesce("@o.attempts", 0) < /*if max_attempts*/ coalesce("@o.max_attempts" /*if retries*/ + 1 /*end*/, $2::integer)
            /*else*/ $2::integer /*end*/
        and "@o.id" not in (select unnest($10::text[]::/*type id*/ uuid /*end*/[]))
        and /*if namespace*/ "@o.namespace:text" = $1 /*else*/ $1::text is not null /*end*/
        and /*if topic*/ ($3::text[] is null or "@o.topic:text" = any ($3)) /*else*/ $3::text[] is null /*end*/
        and /*if tenant*/ ($4::text is null or "@o.tenant:text" = $4) /*else*/ $4::text is null /*end*/
    order by "@o.order"
    limit $5
    for update skip locked
),
/*end*/
picked as (
    select id
    from (
        select id, bytes, sum(bytes) over (order by "@c.order:ref" rows unbounded preceding) - bytes as bytes_before
        from (select * from pending /*if locked_until*/ union all select * from expired /*end*/) c
    ) measured
    where bytes_before = 0 or bytes_before + bytes <= $6
)
/*list picked*/
, taken as (
    update "@outbox" o
    set "@status" = '@processing', "@attempts" = coalesce("@o.attempts", 0) + 1,
        "@lease_token" = $7::text::/*type lease_token*/ uuid /*end*/
        /*if locked_by*/ , "@locked_by" = $11::text::/*type locked_by*/ uuid /*end*/ /*end*/
        /*if locked_until*/ , "@locked_until" = /*as locked_until*/ now() + $8::bigint * interval '1 millisecond' /*end*/ /*end*/
        /*if locked_at*/ , "@locked_at" = /*as locked_at*/ now() /*end*/ /*end*/
        /*if version*/ , "@version" = coalesce("@o.version", 0) + 1 /*end*/
        /*if updated_at*/ , "@updated_at" = /*as updated_at*/ now() /*end*/ /*end*/
    where "@o.id" = any (array(select id from picked)) and $8::bigint is not null
    returning "@o.order:as", "@o.id:text" as id, "@o.event_id:text" as event_id, "@o.namespace:text" as namespace,
        "@o.topic:text" as topic, "@o.ordering_key:text" as ordering_key, "@o.tenant:text" as tenant,
        "@o.dedupe_key:text" as dedupe_key, "@o.event_type:text" as event_type, "@o.source:text" as source,
        "@o.aggregate_type:text" as aggregate_type, "@o.aggregate_id:text" as aggregate_id,
        "@o.content_type:text" as content_type, "@o.payload:bytes" as payload, "@o.headers:text" as headers,
        "@o.content_hash:bytes" as content_hash,
        "@o.attempts:int"::bigint as attempts, "@o.max_attempts:int"::bigint as max_attempts,
        /*if version*/ coalesce("@o.version", 0)::bigint /*else*/ null::bigint /*end*/ as version, "@o.created_at:time" as created_at
)
select * from taken t order by "@t.order:ref"
