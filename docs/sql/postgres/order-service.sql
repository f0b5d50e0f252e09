-- check
-- Names every column that the table map does, so that a wrong one is found before the first claim.
select "id", "payload", "status"
    , "aggregate_id"
    , "event_type"
    , "aggregate_type"
    , "aggregate_id"
    , "error_message"
    , "created_at"
    , "sent_at"
from "outbox"
where false and "status" in ('NEW', 'SENT', 'FAILED' );

-- purge_delivered
-- Removes delivered rows past their retention, oldest first.
--   $1 age in ms  $2 limit  $3 namespace, or null for all
with chosen as materialized (
    select o."id" as id
    from "outbox" o
    where o."status" = 'SENT'
        and o."sent_at" < ((now() - $1::bigint * interval '1 millisecond') at time zone 'UTC')
        and ($3::text is null or true)
    order by o."sent_at"
    limit $2
    for update skip locked
)
delete from "outbox" o where o."id" = any (array(select id from chosen));

-- purgeable
-- Counts what a purge would remove: delivered rows and dead rows past their retention, and dedupe keys whose window is over
-- and whose row is gone by then.
--   $1 age of delivered rows in ms  $2 namespace, or null for all  $3 age of dead rows in ms
select (
    select count(*)
    from "outbox" o
    where o."status" = 'SENT'
        and o."sent_at" < ((now() - $1::bigint * interval '1 millisecond') at time zone 'UTC')
        and ($2::text is null or true)
) as delivered, 0 * coalesce($3::bigint, 0) as dead, 0::bigint as dedupe;

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
        select false as not_due,
            case when (o."created_at" at time zone 'UTC') > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when (o."created_at" at time zone 'UTC') < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else (o."created_at" at time zone 'UTC') end as created_at
        from "outbox" o
        where o."status" in ('NEW') and $1::text is not null
        limit $2::bigint + 1
    ) counted
) pending,
(
    select min(created_at) as oldest
    from (
        select case when (o."created_at" at time zone 'UTC') > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when (o."created_at" at time zone 'UTC') < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else (o."created_at" at time zone 'UTC') end as created_at
        from "outbox" o
        where o."status" in ('NEW') and $1::text is not null
        order by o."created_at", o."id"
        limit 1
    ) first
) head,
(
    select count(*) as n, min(created_at) as oldest
    from (
        select case when (o."created_at" at time zone 'UTC') > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when (o."created_at" at time zone 'UTC') < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else (o."created_at" at time zone 'UTC') end as created_at
        from "outbox" o
        where false
            and $1::text is not null
        limit $2::bigint + 1
    ) counted
) leased,
(
    select count(*) as n
    from (
        select
        from "outbox" o
        where o."status" = 'FAILED' and $1::text is not null
        limit $2::bigint + 1
    ) counted
) given_up;

-- list
-- Rows as an operator sees them.
select
    null::bigint::bigint as seq, o."id"::text as id, null::text as event_id, null::text as namespace, null::text as topic, o."aggregate_id"::text as ordering_key, null::text as tenant, null::text as dedupe_key, o."event_type"::text as event_type, null::text as source, o."aggregate_type"::text as aggregate_type, o."aggregate_id"::text as aggregate_id, null::text as content_type, convert_to(o."payload"::text, 'UTF8') as payload, null::text as headers, null::bytea as content_hash, null::bigint::bigint as max_attempts,
    null::bigint::bigint as version,
    o."status"::text as status, coalesce(null::bigint, 0)::bigint as attempts,
    case when (o."created_at" at time zone 'UTC') > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when (o."created_at" at time zone 'UTC') < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else (o."created_at" at time zone 'UTC') end
        as next_attempt_at,
    null::text as locked_by,
    null::timestamptz as locked_until,
    o."error_message"::text as last_error, case when (o."created_at" at time zone 'UTC') > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when (o."created_at" at time zone 'UTC') < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else (o."created_at" at time zone 'UTC') end as created_at,
    case when (o."created_at" at time zone 'UTC') > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when (o."created_at" at time zone 'UTC') < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else (o."created_at" at time zone 'UTC') end
        as updated_at,
    case when (o."sent_at" at time zone 'UTC') > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when (o."sent_at" at time zone 'UTC') < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else (o."sent_at" at time zone 'UTC') end as delivered_at
from "outbox" o
where ($1::text is null or true)
    and ($2::text[] is null or o."status"::text = any ($2))
    and $3::text is null
    and ($4::text is null or o."aggregate_id"::text = $4)
    and $5::text is null
    and ($6::text[] is null or o."id" = any ($6::text[]::uuid[]))
    and ($7::text is null or (o."created_at", o."id") > (
        select a."created_at", a."id" from "outbox" a where a."id" = $7::text::uuid
    ))
order by o."created_at", o."id"
limit $8;

-- replay
-- Begins dead rows again at their old place in the order. Guarded: a row that is no longer dead is left alone.
with chosen as materialized (
    select o."id" as id
    from "outbox" o
    where o."status" = 'FAILED'
        and ($1::text is null or true)
        and $2::text is null
        and ($3::text is null or o."aggregate_id"::text = $3)
        and $4::text is null
        and ($5::text[] is null or o."id" = any ($5::text[]::uuid[]))
    order by o."created_at", o."id"
    limit $6
    -- Waiting: past a row that is locked, later ones of its key would come before it.
    for update
)
update "outbox" o
set "status" = 'NEW'
where o."id" = any (array(select id from chosen))
returning o."id"::text as id;

-- discard
-- Removes dead rows for good. Guarded: a row that is no longer dead is left alone.
with chosen as materialized (
    select o."id" as id
    from "outbox" o
    where o."status" = 'FAILED'
        and ($1::text is null or true)
        and $2::text is null
        and ($3::text is null or o."aggregate_id"::text = $3)
        and $4::text is null
        and ($5::text[] is null or o."id" = any ($5::text[]::uuid[]))
    order by o."created_at", o."id"
    limit $6
    for update
)
delete from "outbox" o
where o."id" = any (array(select id from chosen))
returning o."id"::text as id;

-- settle
-- Applies changes to rows that are still held: under their token, or by locks of this transaction. The ids that come back
-- were settled. What changes is decided before; null leaves a column as it is. Times are the statement's: a transaction
-- that held its rows while they were published began long ago.
--   $1 ids  $2 tokens  $3 new states  $4 added to attempts  $5 waits in ms  $6 errors  $7 whether delivered
--   $8 whether a dead letter is written  $9 versions
with settled as (
    update "outbox" o
    set "status" = case s.status
            when 'pending' then 'NEW' when 'waiting' then 'NEW'
            when 'delivered' then 'SENT' when 'dead' then 'FAILED'
            else o."status" end
        , "error_message" = coalesce(s.error, o."error_message")
        , "sent_at" = case when s.delivered
            then ((statement_timestamp()) at time zone 'UTC') end
    from unnest($1::text[]::uuid[], $2::text[], $3::text[], $4::integer[], $5::bigint[], $6::text[],
            $7::boolean[], $8::boolean[], $9::bigint[])
        as s (id, token, status, attempts, delay_ms, error, delivered, dead_letter, version)
    where o."id" = s.id
        and o."status" in ('NEW')
    returning o."id"::text as id
)
select id from settled;

-- notify
-- Wakes the relays that listen; never inside a producer's transaction. Its commit does not wait for the disk: there is nothing in
-- it that a crash could undo.
select pg_notify($1, ''), set_config('synchronous_commit', 'off', true);

-- trial_rows
-- Locks some open rows of a scope, on which verdicts are tried before all is rolled back.
--   $1 how many  $2 namespace  $3 topics  $4 tenant
select o."id"::text as id
from "outbox" o
where o."status" in ('NEW')
    -- One that has used up its attempts is not claimed, and its table may refuse one more.
    -- Those that have an index of their own.
    and $2::text is not null
    and $3::text[] is null
    and $4::text is null
-- By that index, and not past all that was delivered until some are found.
limit $1
for update skip locked;

-- lock_unordered
-- Locks due rows in the table's order until the end of the transaction, skipping what others hold; keys are ignored.
--   $1 namespace  $2 max attempts  $3 topics  $4 tenant  $5 limit  $6 max bytes
with locked as materialized (
    select o.*, coalesce(octet_length(convert_to(o."payload"::text, 'UTF8')), 0) as posthaste_bytes
    from "outbox" o
    where o."status" in ('NEW')
        and $2::integer > 0
        and $1::text is not null
    and $3::text[] is null
    and $4::text is null
    order by o."created_at", o."id"
    limit $5
    for update skip locked
),
measured as (
    select o.*, sum(posthaste_bytes) over (order by o."created_at", o."id" rows unbounded preceding) - posthaste_bytes
        as posthaste_bytes_before
    from locked o
)
select null::bigint::bigint as seq, o."id"::text as id, null::text as event_id, null::text as namespace, null::text as topic, o."aggregate_id"::text as ordering_key, null::text as tenant, null::text as dedupe_key, o."event_type"::text as event_type, null::text as source, o."aggregate_type"::text as aggregate_type, o."aggregate_id"::text as aggregate_id, null::text as content_type, convert_to(o."payload"::text, 'UTF8') as payload, null::text as headers, null::bytea as content_hash,
        -- The attempt that is made now is counted when its verdict is written.
        coalesce(null::bigint, 0)::bigint + 1 as attempts, null::bigint::bigint as max_attempts,
        null::bigint as version, case when (o."created_at" at time zone 'UTC') > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when (o."created_at" at time zone 'UTC') < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else (o."created_at" at time zone 'UTC') end as created_at
from measured o
where posthaste_bytes_before = 0 or posthaste_bytes_before + posthaste_bytes <= $6
order by o."created_at", o."id";

-- lock_in_order
-- Locks due rows in the table's order until the end of the transaction, never past an earlier row of the same key. Runs
-- under the claim lock, which is held as long.
--   $1 namespace  $2 max attempts  $3 topics  $4 tenant  $5 limit  $6 max bytes  $7 how many pending rows are looked at
--   $8 whether any topic blocks  $9 whether dead heads block by default  $10 topics with the other policy
--
-- The first rows in the table's order are enough to judge those among them: all earlier rows of their keys are there too.
with seen as materialized (
    (
        select o."id" as id, null::text as topic, o."aggregate_id"::text as ordering_key, o."created_at" as order_0, o."id" as order_1,
            $2::integer > 0
                 as due,
            coalesce(null::bigint, 0) > 0  as waits, true as pending
        from "outbox" o
        where o."status" in ('NEW')
            and $1::text is not null
    and $3::text[] is null
    and $4::text is null
        order by o."created_at", o."id"
        limit $7
    )
    union all
    -- A dead head that blocks is a row that is never taken.
    select o."id", null::text, o."aggregate_id"::text, o."created_at", o."id", false, false, false
    from "outbox" o
    where $8::boolean and o."status" = 'FAILED' and o."aggregate_id" is not null
        and $9::boolean and $10::text[] is not null
),
candidates as materialized (
    select id, topic, ordering_key, m.order_0, m.order_1
    from (
        select id, topic, ordering_key, x.order_0, x.order_1, due,
            -- All earlier rows of the key go along. A retry goes alone: if it fails again, nothing after it is
            -- touched.
            coalesce(bool_and(due and not waits) over (
                partition by topic, ordering_key order by x.order_0, x.order_1 rows between unbounded preceding and 1 preceding
            ), true) as unbroken
        from seen x
    ) m
    where due and (ordering_key is null or unbroken)
    order by m.order_0, m.order_1
    limit $5
),
locked as materialized (
    select o.*, coalesce(octet_length(convert_to(o."payload"::text, 'UTF8')), 0) as posthaste_bytes
    from "outbox" o
    where o."id" = any (array(select id from candidates)) and o."status" in ('NEW')
    for update skip locked
),
picked as (
    select id
    from (
        select c.id, c.ordering_key, l.posthaste_bytes as bytes, l."id" is not null as ours,
            -- A row that somebody else has locked holds back what follows it in its key.
            bool_and(l."id" is not null) over (
                partition by c.topic, c.ordering_key order by c.order_0, c.order_1 rows unbounded preceding
            ) as unbroken,
            sum(l.posthaste_bytes) over (order by c.order_0, c.order_1 rows unbounded preceding) - l.posthaste_bytes
                as bytes_before
        from candidates c
        left join locked l on l."id" = c.id
    ) measured
    where ours and (unbroken or ordering_key is null) and (bytes_before = 0 or bytes_before + bytes <= $6)
)
select null::bigint::bigint as seq, o."id"::text as id, null::text as event_id, null::text as namespace, null::text as topic, o."aggregate_id"::text as ordering_key, null::text as tenant, null::text as dedupe_key, o."event_type"::text as event_type, null::text as source, o."aggregate_type"::text as aggregate_type, o."aggregate_id"::text as aggregate_id, null::text as content_type, convert_to(o."payload"::text, 'UTF8') as payload, null::text as headers, null::bytea as content_hash,
        -- The attempt that is made now is counted when its verdict is written.
        coalesce(null::bigint, 0)::bigint + 1 as attempts, null::bigint::bigint as max_attempts,
        null::bigint as version, case when (o."created_at" at time zone 'UTC') > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when (o."created_at" at time zone 'UTC') < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else (o."created_at" at time zone 'UTC') end as created_at,
        -- One row at least: how many pending rows there were to be looked at.
        s.looked_at
from (select count(*) as looked_at from seen where pending) s
left join locked o on o."id" in (select id from picked)
order by o."created_at", o."id";

-- try_lock_claims
-- Asks for the ordered claims of one outbox until the end of the transaction, in which rows are locked and published.
select pg_try_advisory_xact_lock(hashtextextended(
    -- The table itself, whatever path leads to it.
    'posthaste:' || $2::text::regclass::oid::text || ':' || $1::text, 0)) as locked;

-- insert
-- Writes rows in the caller's transaction into a table that has its own rules about what may be there twice. A row that
-- breaks one of them writes nothing; what comes back was written.
--
-- The clock's time, not that of the transaction's start: whoever waited for another's business row comes after it. Rows of
-- one call are a microsecond apart: a table that is ordered by time keeps the order of the call, whatever their ids are.
with clock as materialized (select clock_timestamp() as moment)
insert into "outbox" (
    "payload", "status"
    , "id"
    , "aggregate_id"
    , "event_type"
    , "aggregate_type"
    , "created_at"
)
select i.payload::text, 'NEW'
    , i.id::uuid
    , i.ordering_key::uuid
    , i.event_type::text
    , i.aggregate_type::text
    , ((c.moment + (i.place - 1) * interval '1 microsecond') at time zone 'UTC')
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
    from "outbox" o
    where false
        or o."id" = w.id::uuid
    limit 1
) f
order by w.place;

-- lock_dead
-- Locks a dead row, so that its letter is not written twice.
--   $1 id
select o."id"::text as id
from "outbox" o
where o."id" = $1::text::uuid and o."status" = 'FAILED'
for update;

-- restore
-- Makes a row that was inserted in this transaction the dead one that it was.
--   $1 its id  $2 the id that it had  $3 attempts  $4 error  $5 time of the first insert  $6 dedupe key  $7 hash
update "outbox" o
set "status" = 'FAILED'
    , "error_message" = $4
    , "created_at" = (($5::timestamptz) at time zone 'UTC')
where o."id" = $1::text::uuid
    and $2::text is not null and $3::integer is not null and $4::text is not null and $5::timestamptz is not null
    and ($6::text is null or true) and ($7::text is null or true);

