-- Takes rows in the table's order, skipping what others hold; keys are ignored.
--   $1 namespace  $2 max attempts  $3 topics  $4 tenant  $5 limit  $6 max bytes  $7 proof of the claim  $8 lease in ms
--   $9 whether rows of vanished workers are wanted, and else pending ones  $10 rows that are left out
--   $11 worker, where the table says who has a row
with pending as (
    select "@o.id" as id, "@o.order:as", coalesce(octet_length("@o.payload:bytes"), 0) as bytes
    from "@outbox" o
    where not $9::boolean and "@o.status" in ('@open')
        /*put o.and_due*/
        and coalesce("@o.attempts", 0) < /*put o.max_attempts*/
        and "@o.id" not in (select unnest($10::text[]::/*type id*/ uuid /*end*/[]))
        and /*put o.in_scope*/
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
        and coalesce("@o.attempts", 0) < /*put o.max_attempts*/
        and "@o.id" not in (select unnest($10::text[]::/*type id*/ uuid /*end*/[]))
        and /*put o.in_scope*/
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
    returning "@o.order:as", "@o.seq:int"::bigint as seq, "@o.message",
        "@o.attempts:int"::bigint as attempts, "@o.max_attempts:int"::bigint as max_attempts,
        /*if version*/ coalesce("@o.version", 0)::bigint /*else*/ null::bigint /*end*/ as version, "@o.created_at:time" as created_at
)
select * from taken t order by "@t.order:ref"
