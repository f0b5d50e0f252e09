-- Applies verdicts to rows that are still held under their token; the ids that come back were settled.
--   $1 ids  $2 tokens  $3 verdicts  $4 waits in ms  $5 errors  $6 versions
with settled as (
    update "@outbox" o
    set "@status" = case s.verdict
            when 'delivered' then '@delivered' when 'dead' then '@dead' when 'released' then '@pending'
            when 'retry' then '@waiting' when 'postponed' then '@waiting'
            -- Never reached; it gives the words the type that the column has.
            else "@o.status" end,
        -- The claim counted. What was not tried is given back; a count of retries does not have the last attempt in it.
        "@attempts" = "@o.attempts"
            - case when s.verdict in ('released', 'postponed' /*if retries*/ , 'delivered', 'dead' /*end*/) then 1 else 0 end
        /*if next_attempt_at*/ , "@next_attempt_at" = case when s.verdict in ('retry', 'postponed')
            then /*if split_index*/
                -- What waits lies strictly after created_at: that is what marks a row as waiting.
                greatest(now() + s.delay_ms * interval '1 millisecond', "@o.created_at" + interval '1 microsecond')
            /*else*/ /*as next_attempt_at*/ now() + s.delay_ms * interval '1 millisecond' /*end*/ /*end*/
            else "@o.next_attempt_at" end /*end*/
        , "@lease_token" = null
        /*if locked_by*/ , "@locked_by" = null /*end*/
        /*if locked_until*/ , "@locked_until" = null /*end*/
        /*if locked_at*/ , "@locked_at" = null /*end*/
        /*if last_error*/ , "@last_error" = coalesce(s.error, "@o.last_error") /*end*/
        /*if delivered_at*/ , "@delivered_at" = case when s.verdict = 'delivered'
            then /*as delivered_at*/ now() /*end*/ end /*end*/
        /*if version*/ , "@version" = coalesce("@o.version", 0) + 1 /*end*/
        /*if updated_at*/ , "@updated_at" = /*as updated_at*/ now() /*end*/ /*end*/
    from unnest($1::text[]::/*type id*/ uuid /*end*/[], $2::text[], $3::text[], $4::bigint[], $5::text[], $6::bigint[])
        as s (id, token, verdict, delay_ms, error, version)
    where "@o.id" = s.id and "@o.lease_token:fence" = s.token and "@o.status" = '@processing'
        /*if version*/ and (s.version is null or coalesce("@o.version", 0) = s.version) /*end*/
    returning /*if dead_letter*/ o.* /*else*/ "@o.id:text" as id /*end*/
)
/*if dead_letter*/
, buried as (
    insert into "@dead_letter" ("@dead_letter/*")
    select "@d.dead_letter:values" from settled d where "@d.status" = '@dead'
    on conflict do nothing -- one that was replayed and died again has its letter already
)
select "@d.id:text" as id from settled d
/*else*/
select id from settled
/*end*/
