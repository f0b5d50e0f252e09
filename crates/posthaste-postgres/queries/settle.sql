-- Applies changes to rows that are still held: under their token, or by locks of this transaction. The ids that come back
-- were settled. What changes is decided before; null leaves a column as it is. Times are the statement's: a transaction
-- that held its rows while they were published began long ago.
--   $1 ids  $2 tokens  $3 new states  $4 added to attempts  $5 waits in ms  $6 errors  $7 whether delivered
--   $8 whether a dead letter is written  $9 versions
with settled as (
    update "@outbox" o
    set "@status" = case s.status
            when 'pending' then '@pending' when 'waiting' then '@waiting'
            when 'delivered' then '@delivered' when 'dead' then '@dead'
            else "@o.status" end
        /*if attempts*/ , "@attempts" = coalesce("@o.attempts", 0) + s.attempts /*end*/
        /*if next_attempt_at*/ , "@next_attempt_at" = case when s.delay_ms is null then "@o.next_attempt_at"
            else /*if split_index*/
                -- What waits lies strictly after created_at: that is what marks a row as waiting.
                greatest(statement_timestamp() + s.delay_ms * interval '1 millisecond',
                    "@o.created_at" + interval '1 microsecond')
            /*else*/ /*as next_attempt_at*/ statement_timestamp() + s.delay_ms * interval '1 millisecond' /*end*/ /*end*/
            end /*end*/
        /*if lease_token*/ , "@lease_token" = null /*end*/
        /*if locked_by*/ , "@locked_by" = null /*end*/
        /*if locked_until*/ , "@locked_until" = null /*end*/
        /*if locked_at*/ , "@locked_at" = null /*end*/
        /*if last_error*/ , "@last_error" = coalesce(s.error, "@o.last_error") /*end*/
        /*if delivered_at*/ , "@delivered_at" = case when s.delivered
            then /*as delivered_at*/ statement_timestamp() /*end*/ end /*end*/
        /*if version*/ , "@version" = coalesce("@o.version", 0) + 1 /*end*/
        /*if updated_at*/ , "@updated_at" = /*as updated_at*/ statement_timestamp() /*end*/ /*end*/
    from unnest($1::text[]::/*type id*/ uuid /*end*/[], $2::text[], $3::text[], $4::integer[], $5::bigint[], $6::text[],
            $7::boolean[], $8::boolean[], $9::bigint[])
        as s (id, token, status, attempts, delay_ms, error, delivered, dead_letter, version)
    where "@o.id" = s.id
        /*if lease_token*/ and "@o.lease_token:fence" = s.token and "@o.status" = '@processing'
        /*else*/ and "@o.status" in ('@open') /*end*/
        /*if version*/ and (s.version is null or coalesce("@o.version", 0) = s.version) /*end*/
    returning /*if dead_letter*/ o.*, s.dead_letter as posthaste_dead_letter /*else*/ "@o.id:text" as id /*end*/
)
/*if dead_letter*/
, dead_lettered as (
    insert into "@dead_letter" ("@dead_letter/*")
    select "@d.dead_letter:values" from settled d where d.posthaste_dead_letter
    on conflict do nothing -- one that was replayed and died again has its letter already
)
select "@d.id:text" as id from settled d
/*else*/
select id from settled
/*end*/
