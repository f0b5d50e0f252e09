-- Applies verdicts to rows that this transaction has locked since it claimed them; the ids that come back were settled.
with settled as (
    update "@outbox" o
    set "@status" = case s.verdict
            when 'delivered' then '@delivered' when 'dead' then '@dead' when 'released' then "@o.status"
            when 'retry' then '@waiting' when 'postponed' then '@waiting' else "@o.status" end
        /*if attempts*/ , "@attempts" = coalesce("@o.attempts", 0)
            -- A count of retries has those in it that were scheduled, and no others.
            + case when s.verdict in ('retry' /*if retries*/ /*else*/ , 'delivered', 'dead' /*end*/) then 1 else 0 end /*end*/
        /*if next_attempt_at*/ , "@next_attempt_at" = case when s.verdict in ('retry', 'postponed')
            then /*as next_attempt_at*/ clock_timestamp() + s.delay_ms * interval '1 millisecond' /*end*/
            else "@o.next_attempt_at" end /*end*/
        /*if last_error*/ , "@last_error" = coalesce(s.error, "@o.last_error") /*end*/
        /*if delivered_at*/ , "@delivered_at" = case when s.verdict = 'delivered'
            then /*as delivered_at*/ clock_timestamp() /*end*/ else "@o.delivered_at" end /*end*/
        /*if version*/ , "@version" = coalesce("@o.version", 0) + 1 /*end*/
        /*if updated_at*/ , "@updated_at" = /*as updated_at*/ clock_timestamp() /*end*/ /*end*/
    from unnest($1::text[]::/*type id*/ uuid /*end*/[], $2::text[], $3::bigint[], $4::text[], $5::bigint[])
        as s (id, verdict, delay_ms, error, version)
    where "@o.id" = s.id and "@o.status" in ('@open')
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
