-- Takes due rows, skipping what others hold; keys are ignored.
--   $1 namespace  $2 max attempts  $3 topics  $4 tenant  $5 limit  $6 max bytes  $7 worker  $8 token  $9 lease in ms
--   $10 rows that are left out  $11 whether nothing is taken where vanished workers left something
with expired as materialized (
    -- What vanished workers left: the most attempts among rows that may be tried again, and how many may not.
    select max(o."@attempts") filter (where o."@attempts" < /*put o.max_attempts*/)::bigint as most_tried,
        count(*) filter (where o."@attempts" >= /*put o.max_attempts*/) as exhausted,
        not $11::boolean or count(*) = 0 as is_passed
    from "@outbox" o
    where o."@namespace" = $1 and o."@status" = '@processing' and o."@locked_until" < now()
        and ($3::text[] is null or o."@topic" = any ($3))
        and ($4::text is null or o."@tenant" = $4)
),
fresh as (
    select "@id" as id, "@seq" as seq, octet_length("@payload") as bytes
    from "@outbox"
    where "@namespace" = $1 and "@status" = '@pending' and "@next_attempt_at" <= "@created_at"
        and "@attempts" < $2 and "@id" not in (select unnest($10::text[]::uuid[]))
        and ($3::text[] is null or "@topic" = any ($3))
        and ($4::text is null or "@tenant" = $4)
        and (select is_passed from expired)
    order by "@seq"
    limit $5
    for update skip locked
),
due as (
    select "@id" as id, "@seq" as seq, octet_length("@payload") as bytes
    from "@outbox"
    where "@namespace" = $1 and "@status" = '@pending' and "@next_attempt_at" > "@created_at"
        and "@next_attempt_at" <= now()
        and "@attempts" < $2 and "@id" not in (select unnest($10::text[]::uuid[]))
        and ($3::text[] is null or "@topic" = any ($3))
        and ($4::text is null or "@tenant" = $4)
        and (select is_passed from expired)
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
/*list picked*/
, taken as (
    update "@outbox" o
    set "@status" = '@processing', "@attempts" = o."@attempts" + 1,
        "@locked_by" = $7::text::/*type locked_by*/ uuid /*end*/,
        "@lease_token" = $8::text::/*type lease_token*/ uuid /*end*/, "@locked_until" = now() + $9::bigint * interval '1 millisecond', "@updated_at" = now()
    where o."@id" = any (array(select id from picked))
    returning "@o.seq"::bigint as seq, "@o.message", "@o.attempts:int"::bigint as attempts,
        "@o.max_attempts:int"::bigint as max_attempts, "@o.version:int"::bigint as version,
        "@o.created_at:time" as created_at
)
-- One row at least: what vanished workers left.
select t.*, e.most_tried, e.exhausted from expired e left join taken t on true
