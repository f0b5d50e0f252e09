-- Gives up rows that have used all their attempts without a verdict.
--   $1 namespace  $2 max attempts  $3 topics  $4 tenant  $5 the error of a row that has none  $6 added to attempts of a row
--   that was claimed
with exhausted as materialized (
/*if split_index*/
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
    -- Given back by a second worker after the first one crashed: fresh, but tried.
    select "@id"
    from "@outbox"
    where "@namespace" = $1 and "@status" = '@pending' and "@next_attempt_at" <= "@created_at" and "@attempts" > 0
        and "@attempts" >= $2
        and ($3::text[] is null or "@topic" = any ($3))
        and ($4::text is null or "@tenant" = $4)
/*else*/
    select "@o.id" as id
    from "@outbox" o
    where "@o.status" in ('@open' /*if locked_until*/ , '@processing' /*end*/) and coalesce("@o.attempts", 0) > 0
        and "@o.attempts" >= /*put o.max_attempts*/
        /*if locked_until*/ and ("@o.status" in ('@open')
            or "@o.locked_until" is null or "@o.locked_until" < /*as locked_until*/ now() /*end*/) /*end*/
        and /*put o.in_scope*/
/*end*/
),
locked as materialized (
    select "@o.id" as id
    from "@outbox" o
    where "@o.id" = any (array(select id from exhausted))
        and "@o.attempts" >= /*if max_attempts*/ coalesce("@o.max_attempts" /*if retries*/ + 1 /*end*/, $2::integer)
            /*else*/ $2 /*end*/
        and ("@o.status" in ('@open') /*if locked_until*/ or ("@o.status" = '@processing' and (/*if split_index*/
            /*else*/ "@o.locked_until" is null or /*end*/ "@o.locked_until" < /*as locked_until*/ now() /*end*/)) /*end*/)
    for update skip locked
),
swept as (
    update "@outbox" o
    set "@status" = '@dead'
        /*if lease_token*/ , "@attempts" = "@o.attempts" + case when "@o.status" = '@processing' then $6 else 0 end /*end*/
        /*if lease_token*/ , "@lease_token" = null /*end*/
        /*if locked_by*/ , "@locked_by" = null /*end*/
        /*if locked_until*/ , "@locked_until" = null /*end*/
        /*if locked_at*/ , "@locked_at" = null /*end*/
        /*if last_error*/ , "@last_error" = coalesce("@o.last_error", $5) /*end*/
        /*if version*/ , "@version" = coalesce("@o.version", 0) + 1 /*end*/
        /*if updated_at*/ , "@updated_at" = /*as updated_at*/ now() /*end*/ /*end*/
    where "@o.id" = any (array(select id from locked)) and $5::text is not null and $6::integer is not null
    returning /*if dead_letter*/ o.* /*else*/ "@o.id:text" as id /*end*/
)
/*if dead_letter*/
, dead_lettered as (
    insert into "@dead_letter" ("@dead_letter/*") select "@d.dead_letter:values" from swept d
    on conflict do nothing
)
select "@d.id:text" as id from swept d
/*else*/
select id from swept
/*end*/
