-- check
-- Names every column that the table map does, so that a wrong one is found before the first claim.
select "id", "payload", "status"
    , "request_id"
    , "event_type"
    , "content_hash"
    , "retry_count"
    , "max_retries"
    , "next_retry_at"
    , "locked_by"
    , "locked_at"
    , "last_error"
    , "created_at"
    , "updated_at"
    , "version"
from "donation_outbox"
where false and "status" in ('PENDING', 'FAILED', 'COMPLETED', 'DEAD_LETTER' , 'PROCESSING');

-- purge_delivered
-- Removes delivered rows past their retention, oldest first.
--   $1 age in ms  $2 limit  $3 namespace, or null for all
with chosen as materialized (
    select o."id" as id
    from "donation_outbox" o
    where o."status" = 'COMPLETED'
        and o."updated_at" < ((now() - $1::bigint * interval '1 millisecond') at time zone 'UTC')
        and ($3::text is null or true)
    order by o."updated_at"
    limit $2
    for update skip locked
)
delete from "donation_outbox" o where o."id" = any (array(select id from chosen));

-- purgeable
-- Counts what a purge would remove: delivered rows and dead rows past their retention, and dedupe keys whose window is over
-- and whose row is gone by then.
--   $1 age of delivered rows in ms  $2 namespace, or null for all  $3 age of dead rows in ms
select (
    select count(*)
    from "donation_outbox" o
    where o."status" = 'COMPLETED'
        and o."updated_at" < ((now() - $1::bigint * interval '1 millisecond') at time zone 'UTC')
        and ($2::text is null or true)
) as delivered, (
    select count(*)
    from "donation_outbox" o
    where o."status" = 'DEAD_LETTER'
        and o."updated_at" < ((now() - $3::bigint * interval '1 millisecond') at time zone 'UTC')
        and ($2::text is null or true)
) as dead, 0::bigint as dedupe;

-- stats
-- Counts what is not delivered.
--   $1 namespace  $2 how many rows of a kind are counted
-- The oldest pending row is the first in order, or one of those that were counted.
select
    pending.n as pending, pending.not_due as waiting, leased.n as processing, given_up.n as dead,
    coalesce(extract(epoch from now() - least(head.oldest, pending.oldest, leased.oldest)), 0)::float8 as oldest_seconds
from (
    select count(*) as n, count(*) filter (where not_due) as not_due, min(created_at) as oldest
    from (
        select o."next_retry_at" > ((now()) at time zone 'UTC') as not_due,
            case when (o."created_at" at time zone 'UTC') > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when (o."created_at" at time zone 'UTC') < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else (o."created_at" at time zone 'UTC') end as created_at
        from "donation_outbox" o
        where o."status" in ('PENDING', 'FAILED') and $1::text is not null
        limit $2::bigint + 1
    ) counted
) pending,
(
    select min(created_at) as oldest
    from (
        select case when (o."created_at" at time zone 'UTC') > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when (o."created_at" at time zone 'UTC') < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else (o."created_at" at time zone 'UTC') end as created_at
        from "donation_outbox" o
        where o."status" in ('PENDING', 'FAILED') and $1::text is not null
        order by o."id"
        limit 1
    ) first
) head,
(
    select count(*) as n, min(created_at) as oldest
    from (
        select case when (o."created_at" at time zone 'UTC') > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when (o."created_at" at time zone 'UTC') < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else (o."created_at" at time zone 'UTC') end as created_at
        from "donation_outbox" o
        where o."status" = 'PROCESSING'
            and $1::text is not null
        limit $2::bigint + 1
    ) counted
) leased,
(
    select count(*) as n
    from (
        select
        from "donation_outbox" o
        where o."status" = 'DEAD_LETTER' and $1::text is not null
        limit $2::bigint + 1
    ) counted
) given_up;

-- list
-- Rows as an operator sees them.
select
    null::bigint::bigint as seq, o."id"::text as id, o."request_id"::text as event_id, null::text as namespace, null::text as topic, null::text as ordering_key, null::text as tenant, null::text as dedupe_key, o."event_type"::text as event_type, null::text as source, null::text as aggregate_type, null::text as aggregate_id, null::text as content_type, convert_to(o."payload"::text, 'UTF8') as payload, null::text as headers, convert_to(o."content_hash"::text, 'UTF8') as content_hash, o."max_retries"::bigint as max_attempts,
    o."version"::bigint as version,
    o."status"::text as status, coalesce(o."retry_count", 0)::bigint as attempts,
    coalesce(case when (o."next_retry_at" at time zone 'UTC') > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when (o."next_retry_at" at time zone 'UTC') < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else (o."next_retry_at" at time zone 'UTC') end, case when (o."created_at" at time zone 'UTC') > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when (o."created_at" at time zone 'UTC') < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else (o."created_at" at time zone 'UTC') end)
        as next_attempt_at,
    o."locked_by"::text as locked_by,
    null::timestamptz as locked_until,
    o."last_error"::text as last_error, case when (o."created_at" at time zone 'UTC') > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when (o."created_at" at time zone 'UTC') < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else (o."created_at" at time zone 'UTC') end as created_at,
    coalesce(case when (o."updated_at" at time zone 'UTC') > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when (o."updated_at" at time zone 'UTC') < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else (o."updated_at" at time zone 'UTC') end, case when (o."created_at" at time zone 'UTC') > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when (o."created_at" at time zone 'UTC') < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else (o."created_at" at time zone 'UTC') end)
        as updated_at,
    null::timestamptz as delivered_at
from "donation_outbox" o
where ($1::text is null or true)
    and ($2::text[] is null or o."status"::text = any ($2))
    and $3::text is null
    and $4::text is null
    and $5::text is null
    and ($6::text[] is null or o."id" = any ($6::text[]::bigint[]))
    and ($7::text is null or (o."id") > (
        select a."id" from "donation_outbox" a where a."id" = $7::text::bigint
    ))
order by o."id"
limit $8;

-- replay
-- Begins dead rows again at their old place in the order. Guarded: a row that is no longer dead is left alone.
with chosen as materialized (
    select o."id" as id
    from "donation_outbox" o
    where o."status" = 'DEAD_LETTER'
        and ($1::text is null or true)
        and $2::text is null
        and $3::text is null
        and $4::text is null
        and ($5::text[] is null or o."id" = any ($5::text[]::bigint[]))
    order by o."id"
    limit $6
    -- Waiting: past a row that is locked, later ones of its key would come before it.
    for update
)
update "donation_outbox" o
set "status" = 'PENDING'
    , "retry_count" = 0
    , "next_retry_at" = ((now()) at time zone 'UTC')
    , "version" = coalesce(o."version", 0) + 1
    , "updated_at" = ((now()) at time zone 'UTC')
where o."id" = any (array(select id from chosen))
returning o."id"::text as id;

-- discard
-- Removes dead rows for good. Guarded: a row that is no longer dead is left alone.
with chosen as materialized (
    select o."id" as id
    from "donation_outbox" o
    where o."status" = 'DEAD_LETTER'
        and ($1::text is null or true)
        and $2::text is null
        and $3::text is null
        and $4::text is null
        and ($5::text[] is null or o."id" = any ($5::text[]::bigint[]))
    order by o."id"
    limit $6
    for update
)
delete from "donation_outbox" o
where o."id" = any (array(select id from chosen))
returning o."id"::text as id;

-- settle
-- Applies changes to rows that are still held: under their token, or by locks of this transaction. The ids that come back
-- were settled. What changes is decided before; null leaves a column as it is. Times are the statement's: a transaction
-- that held its rows while they were published began long ago.
--   $1 ids  $2 tokens  $3 new states  $4 added to attempts  $5 waits in ms  $6 errors  $7 whether delivered
--   $8 whether a dead letter is written  $9 versions
with settled as (
    update "donation_outbox" o
    set "status" = case s.status
            when 'pending' then 'PENDING' when 'waiting' then 'FAILED'
            when 'delivered' then 'COMPLETED' when 'dead' then 'DEAD_LETTER'
            else o."status" end
        , "retry_count" = coalesce(o."retry_count", 0) + s.attempts
        , "next_retry_at" = case when s.delay_ms is null then o."next_retry_at"
            else ((statement_timestamp() + s.delay_ms * interval '1 millisecond') at time zone 'UTC')
            end
        , "locked_by" = null
        , "locked_at" = null
        , "last_error" = coalesce(s.error, o."last_error")
        , "version" = coalesce(o."version", 0) + 1
        , "updated_at" = ((statement_timestamp()) at time zone 'UTC')
    from unnest($1::text[]::bigint[], $2::text[], $3::text[], $4::integer[], $5::bigint[], $6::text[],
            $7::boolean[], $8::boolean[], $9::bigint[])
        as s (id, token, status, attempts, delay_ms, error, delivered, dead_letter, version)
    where o."id" = s.id
        and right(o."locked_by", 36) = s.token and o."status" = 'PROCESSING'
        and (s.version is null or coalesce(o."version", 0) = s.version)
    returning o.*, s.dead_letter as posthaste_dead_letter
)
, dead_lettered as (
    insert into "donation_dlq" ("created_at", "request_id", "event_type", "original_id", "reason", "payload")
    select ((now()) at time zone 'UTC'), d."request_id", d."event_type", d."id", d."last_error", d."payload" from settled d where d.posthaste_dead_letter
    on conflict do nothing -- one that was replayed and died again has its letter already
)
select d."id"::text as id from settled d;

-- notify
-- Wakes the relays that listen; never inside a producer's transaction. Its commit does not wait for the disk: there is nothing in
-- it that a crash could undo.
select pg_notify($1, ''), set_config('synchronous_commit', 'off', true);

-- trial_rows
-- Locks some open rows of a scope, on which verdicts are tried before all is rolled back.
--   $1 how many  $2 namespace  $3 topics  $4 tenant
select o."id"::text as id
from "donation_outbox" o
where o."status" in ('PENDING', 'FAILED')
    -- One that has used up its attempts is not claimed, and its table may refuse one more.
    and coalesce(o."retry_count", 0) = 0
    -- Those that have an index of their own.
    and $2::text is not null
    and $3::text[] is null
    and $4::text is null
-- By that index, and not past all that was delivered until some are found.
limit $1
for update skip locked;

-- claim_unordered
-- Takes rows in the table's order, skipping what others hold; keys are ignored.
--   $1 namespace  $2 max attempts  $3 topics  $4 tenant  $5 limit  $6 max bytes  $7 proof of the claim  $8 lease in ms
--   $9 whether rows of vanished workers are wanted, and else pending ones  $10 rows that are left out
--   $11 worker, where the table says who has a row
with pending as (
    select o."id" as id, o."id" as order_0, coalesce(octet_length(convert_to(o."payload"::text, 'UTF8')), 0) as bytes
    from "donation_outbox" o
    where not $9::boolean and o."status" in ('PENDING', 'FAILED')
        and (o."next_retry_at" is null
    or o."next_retry_at" <= ((now()) at time zone 'UTC'))
        and coalesce(o."retry_count", 0) < coalesce(o."max_retries" + 1, $2::integer)
        and o."id" not in (select unnest($10::text[]::bigint[]))
        and $1::text is not null
    and $3::text[] is null
    and $4::text is null
    order by o."id"
    limit $5
    for update skip locked
),
picked as (
    select id
    from (
        select id, bytes, sum(bytes) over (order by c.order_0 rows unbounded preceding) - bytes as bytes_before
        from (select * from pending ) c
    ) measured
    where bytes_before = 0 or bytes_before + bytes <= $6
)
, taken as (
    update "donation_outbox" o
    set "status" = 'PROCESSING', "retry_count" = coalesce(o."retry_count", 0) + 1,
        "locked_by" = $7::text::text
        , "locked_at" = ((now()) at time zone 'UTC')
        , "version" = coalesce(o."version", 0) + 1
        , "updated_at" = ((now()) at time zone 'UTC')
    where o."id" = any (array(select id from picked)) and $8::bigint is not null
    returning o."id" as order_0, null::bigint::bigint as seq, o."id"::text as id, o."request_id"::text as event_id, null::text as namespace, null::text as topic, null::text as ordering_key, null::text as tenant, null::text as dedupe_key, o."event_type"::text as event_type, null::text as source, null::text as aggregate_type, null::text as aggregate_id, null::text as content_type, convert_to(o."payload"::text, 'UTF8') as payload, null::text as headers, convert_to(o."content_hash"::text, 'UTF8') as content_hash,
        o."retry_count"::bigint as attempts, o."max_retries"::bigint as max_attempts,
        coalesce(o."version", 0)::bigint as version, case when (o."created_at" at time zone 'UTC') > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when (o."created_at" at time zone 'UTC') < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else (o."created_at" at time zone 'UTC') end as created_at
)
select * from taken t order by t.order_0;

-- extend
-- Prolongs leases that are still held under the token. Where a table only says since when a row is held, that is now.
--   $1 ids  $2 token  $3 lease in ms
update "donation_outbox" o
set "locked_at" = case when $3::bigint > 0 then ((now()) at time zone 'UTC') else o."locked_at" end
    , "updated_at" = ((now()) at time zone 'UTC')
where o."id" = any ($1::text[]::bigint[]) and right(o."locked_by", 36) = $2
    and o."status" = 'PROCESSING'
returning o."id"::text as id;

-- lock_held
-- Locks rows that are still held under their token, but for those that another transaction has locked.
--   $1 ids  $2 tokens
select o."id"::text as id
from "donation_outbox" o
join unnest($1::text[]::bigint[], $2::text[]) as s (id, token)
    on o."id" = s.id and right(o."locked_by", 36) = s.token
where o."status" = 'PROCESSING'
order by o."id"
for update of o skip locked;

-- find_held
-- Finds rows that are still held under their token, locked or not.
--   $1 ids  $2 tokens  $3 versions
select o."id"::text as id
from "donation_outbox" o
join unnest($1::text[]::bigint[], $2::text[], $3::bigint[]) as s (id, token, version)
    on o."id" = s.id and right(o."locked_by", 36) = s.token
where o."status" = 'PROCESSING'
    and (s.version is null or coalesce(o."version", 0) = s.version);

-- lock_claims
-- Serialises the ordered claims of one outbox until the end of the transaction. Another claim may take its time; whoever has
-- locked the table as a whole is not waited for as long.
select set_config('lock_timeout', '1s', true) from pg_advisory_xact_lock(hashtextextended(-- The table itself, whatever path leads to it.
    'posthaste:' || $2::text::regclass::oid::text || ':' || $1::text, 0));

-- trial_claim
-- Claims rows that are locked: to try verdicts on them, or to find out whose claim is refused. It is rolled back.
--   $1 ids  $2 proof of the claim  $3 lease in ms  $4 worker, where the table says who has a row
update "donation_outbox" o
set "status" = 'PROCESSING', "retry_count" = coalesce(o."retry_count", 0) + 1,
    "locked_by" = $2::text::text
    , "locked_at" = ((now()) at time zone 'UTC')
    , "version" = coalesce(o."version", 0) + 1
    , "updated_at" = ((now()) at time zone 'UTC')
where o."id" = any ($1::text[]::bigint[]) and $3::bigint is not null
returning o."id"::text as id;

-- purge_dead
-- Removes dead rows past their retention, those that died first before the others. Guarded: a row that is no longer dead is
-- left alone.
--   $1 age in ms  $2 limit  $3 namespace, or null for all
with chosen as materialized (
    select o."id" as id
    from "donation_outbox" o
    where o."status" = 'DEAD_LETTER'
        and o."updated_at" < ((now() - $1::bigint * interval '1 millisecond') at time zone 'UTC')
        and ($3::text is null or true)
    order by o."updated_at"
    limit $2
    for update skip locked
)
delete from "donation_outbox" o
where o."id" = any (array(select id from chosen))
returning o."id"::text as id;

-- sweep
-- Gives up rows that have used all their attempts without a verdict.
--   $1 namespace  $2 max attempts  $3 topics  $4 tenant  $5 the error of a row that has none  $6 added to attempts of a row
--   that was claimed
with exhausted as materialized (
select o."id" as id
    from "donation_outbox" o
    where o."status" in ('PENDING', 'FAILED' ) and coalesce(o."retry_count", 0) > 0
        and o."retry_count" >= coalesce(o."max_retries" + 1, $2::integer)
        and $1::text is not null
    and $3::text[] is null
    and $4::text is null
),
locked as materialized (
    select o."id" as id
    from "donation_outbox" o
    where o."id" = any (array(select id from exhausted))
        and o."retry_count" >= coalesce(o."max_retries" + 1, $2::integer)
        and (o."status" in ('PENDING', 'FAILED') )
    for update skip locked
),
swept as (
    update "donation_outbox" o
    set "status" = 'DEAD_LETTER'
        , "retry_count" = o."retry_count" + case when o."status" = 'PROCESSING' then $6 else 0 end
        , "locked_by" = null
        , "locked_at" = null
        , "last_error" = coalesce(o."last_error", $5)
        , "version" = coalesce(o."version", 0) + 1
        , "updated_at" = ((now()) at time zone 'UTC')
    where o."id" = any (array(select id from locked)) and $5::text is not null and $6::integer is not null
    returning o.*
)
, dead_lettered as (
    insert into "donation_dlq" ("created_at", "request_id", "event_type", "original_id", "reason", "payload") select ((now()) at time zone 'UTC'), d."request_id", d."event_type", d."id", d."last_error", d."payload" from swept d
    on conflict do nothing
)
select d."id"::text as id from swept d;

-- recover
-- Takes rows back from workers that are held to have crashed, where the table only says since when a row is held. The
-- attempt counts: this row may be what killed its worker.
--   $1 namespace  $2 max attempts  $3 topics  $4 tenant  $5 the error of a row that has none  $6 stalled after, in ms
--   $7 only these rows, if any are given  $8 added to attempts of a row that dies
with stalled as materialized (
    select o."id" as id,
        coalesce(o."retry_count", 0) >= coalesce(o."max_retries" + 1, $2::integer) as exhausted
    from "donation_outbox" o
    where o."status" = 'PROCESSING'
        and (o."locked_at" is null
            or o."locked_at" < ((now() - $6::bigint * interval '1 millisecond') at time zone 'UTC'))
        and $1::text is not null
    and $3::text[] is null
    and $4::text is null
        and ($7::text[] is null or o."id" = any ($7::text[]::bigint[]))
    for update skip locked
)
, recovered as (
    update "donation_outbox" o
    set "status" = case when m.exhausted then 'DEAD_LETTER' when not m.exhausted then 'PENDING' else o."status" end,
        "locked_by" = null, "locked_at" = null
        , "retry_count" = coalesce(o."retry_count", 0) + case when m.exhausted then $8::integer else 0 end
        , "last_error" = case when m.exhausted then coalesce(o."last_error", $5)
            else o."last_error" end
        , "version" = coalesce(o."version", 0) + 1
        , "updated_at" = ((now()) at time zone 'UTC')
    from stalled m
    where o."id" = m.id and o."id" = any (array(select id from stalled)) and $5::text is not null
    returning o.*
)
, dead_lettered as (
    insert into "donation_dlq" ("created_at", "request_id", "event_type", "original_id", "reason", "payload")
    select ((now()) at time zone 'UTC'), d."request_id", d."event_type", d."id", d."last_error", d."payload" from recovered d where d."status" = 'DEAD_LETTER'
    on conflict do nothing
)
select d."id"::text as id, d."status" = 'DEAD_LETTER' as exhausted from recovered d;

-- check_dead_letter
-- Names every column of the dead-letter table that the table map does.
select "created_at", "request_id", "event_type", "original_id", "reason", "payload" from "donation_dlq" where false;

-- insert
-- Writes rows in the caller's transaction into a table that has its own rules about what may be there twice. A row that
-- breaks one of them writes nothing; what comes back was written.
--
-- The clock's time, not that of the transaction's start: whoever waited for another's business row comes after it. Rows of
-- one call are a microsecond apart: a table that is ordered by time keeps the order of the call, whatever their ids are.
with clock as materialized (select clock_timestamp() as moment)
insert into "donation_outbox" (
    "payload", "status"
    , "request_id"
    , "event_type"
    , "content_hash"
    , "retry_count"
    , "version"
    , "next_retry_at"
    , "created_at"
    , "updated_at"
)
select i.payload::text, 'PENDING'
    , i.event_id::text
    , i.event_type::text
    , i.content_hash::text
    , 0
    , 0
    , ((greatest(c.moment, i.not_before::timestamptz)) at time zone 'UTC')
    , ((c.moment + (i.place - 1) * interval '1 microsecond') at time zone 'UTC')
    , ((c.moment) at time zone 'UTC')
from unnest(
    $1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[],
    $10::text[], $11::text[], $12::text[], $13::text[], $14::text[], $15::text[], $16::text[]
) with ordinality as i (
    id, event_id, namespace, topic, ordering_key, tenant, dedupe_key, event_type, source, aggregate_type,
    aggregate_id, content_type, payload, headers, content_hash, not_before, place
)
cross join clock c
order by -- One order for all producers, so that they cannot deadlock over the keys.
    i.namespace, i.topic, i.dedupe_key, i.place
on conflict do nothing
returning 0::bigint as place, "id"::text as id, true as is_new;

-- find_enqueued
-- Finds the rows that kept others from being written: one with the dedupe key, or the event id, or the id.
select w.place, f.id, false as is_new
from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[]) with ordinality
    as w (id, event_id, namespace, topic, dedupe_key, place)
cross join lateral (
    select o."id"::text as id
    from "donation_outbox" o
    where false
        or o."request_id" = w.event_id::text
    limit 1
) f
order by w.place;

-- lock_dead
-- Locks a dead row, so that its letter is not written twice.
--   $1 id
select o."id"::text as id
from "donation_outbox" o
where o."id" = $1::text::bigint and o."status" = 'DEAD_LETTER'
for update;

-- restore
-- Makes a row that was inserted in this transaction the dead one that it was.
--   $1 its id  $2 the id that it had  $3 attempts  $4 error  $5 time of the first insert  $6 dedupe key  $7 hash
update "donation_outbox" o
set "status" = 'DEAD_LETTER'
    , "id" = $2::text::bigint
    , "retry_count" = $3
    , "last_error" = $4
    , "created_at" = (($5::timestamptz) at time zone 'UTC')
    , "content_hash" = $7::text::text
where o."id" = $1::text::bigint
    and $2::text is not null and $3::integer is not null and $4::text is not null and $5::timestamptz is not null
    and ($6::text is null or true) and ($7::text is null or true);

-- restore_dead_letter
-- Copies a dead row to the dead-letter table, unless it is there.
--   $1 id
insert into "donation_dlq" ("created_at", "request_id", "event_type", "original_id", "reason", "payload")
select ((now()) at time zone 'UTC'), o."request_id", o."event_type", o."id", o."last_error", o."payload"
from "donation_outbox" o
where o."id" = $1::text::bigint and o."status" = 'DEAD_LETTER'
    and not exists (
        select from "donation_dlq" l
        where true
            and l."original_id"::text = o."id"::text
            and l."request_id"::text = o."request_id"::text
    )
on conflict do nothing;

-- find_lock_holders
-- Says who has locked rows: a row that is locked has the number of the transaction, which holds a lock on that number.
--   $1 ids
select o."id"::text as id, 'session ' || l.pid || coalesce(' (' || nullif(a.application_name, '') || ')', '') as holder
from "donation_outbox" o
join pg_locks l on l.locktype = 'transactionid' and l.transactionid = o.xmax and l.granted and l.mode = 'ExclusiveLock'
left join pg_stat_activity a on a.pid = l.pid
where o."id" = any ($1::text[]::bigint[]);

