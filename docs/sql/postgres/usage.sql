-- check
-- Names every column that the table map does, so that a wrong one is found before the first claim.
select "id", "payload", "status"
    , "namespace"
    , "topic"
    , "tenant_id"
    , "dedupe_key"
    , "attempts"
    , "next_attempt_at"
    , "locked_by"
    , "locked_until"
    , "last_error"
    , "created_at"
    , "updated_at"
from "modkit_outbox_events"
where false and "status" in ('pending', 'delivered', 'dead' , 'processing');

-- purge_delivered
-- Removes delivered rows past their retention, oldest first.
--   $1 age in ms  $2 limit  $3 namespace, or null for all
with chosen as materialized (
    select o."id" as id
    from "modkit_outbox_events" o
    where o."status" = 'delivered'
        and o."updated_at" < now() - $1::bigint * interval '1 millisecond'
        and ($3::text is null or o."namespace"::text = $3)
    order by o."updated_at"
    limit $2
    for update skip locked
)
delete from "modkit_outbox_events" o where o."id" = any (array(select id from chosen));

-- purgeable
-- Counts what a purge would remove: delivered rows and dead rows past their retention, and dedupe keys whose window is over
-- and whose row is gone by then.
--   $1 age of delivered rows in ms  $2 namespace, or null for all  $3 age of dead rows in ms
select (
    select count(*)
    from "modkit_outbox_events" o
    where o."status" = 'delivered'
        and o."updated_at" < now() - $1::bigint * interval '1 millisecond'
        and ($2::text is null or o."namespace"::text = $2)
) as delivered, (
    select count(*)
    from "modkit_outbox_events" o
    where o."status" = 'dead'
        and o."updated_at" < now() - $3::bigint * interval '1 millisecond'
        and ($2::text is null or o."namespace"::text = $2)
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
        select o."next_attempt_at" > now() as not_due,
            case when o."created_at" > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when o."created_at" < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else o."created_at" end as created_at
        from "modkit_outbox_events" o
        where o."status" in ('pending') and o."namespace"::text = $1
        limit $2::bigint + 1
    ) counted
) pending,
(
    select min(created_at) as oldest
    from (
        select case when o."created_at" > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when o."created_at" < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else o."created_at" end as created_at
        from "modkit_outbox_events" o
        where o."status" in ('pending') and o."namespace"::text = $1
        order by o."created_at", o."id"
        limit 1
    ) first
) head,
(
    select count(*) as n, min(created_at) as oldest
    from (
        select case when o."created_at" > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when o."created_at" < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else o."created_at" end as created_at
        from "modkit_outbox_events" o
        where o."status" = 'processing'
            and o."namespace"::text = $1
        limit $2::bigint + 1
    ) counted
) leased,
(
    select count(*) as n
    from (
        select
        from "modkit_outbox_events" o
        where o."status" = 'dead' and o."namespace"::text = $1
        limit $2::bigint + 1
    ) counted
) given_up;

-- list
-- Rows as an operator sees them.
select
    null::bigint::bigint as seq, o."id"::text as id, null::text as event_id, o."namespace"::text as namespace, o."topic"::text as topic, null::text as ordering_key, o."tenant_id"::text as tenant, o."dedupe_key"::text as dedupe_key, null::text as event_type, null::text as source, null::text as aggregate_type, null::text as aggregate_id, null::text as content_type, convert_to(o."payload"::text, 'UTF8') as payload, null::text as headers, null::bytea as content_hash, null::bigint::bigint as max_attempts,
    null::bigint::bigint as version,
    o."status"::text as status, coalesce(o."attempts", 0)::bigint as attempts,
    coalesce(case when o."next_attempt_at" > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when o."next_attempt_at" < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else o."next_attempt_at" end, case when o."created_at" > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when o."created_at" < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else o."created_at" end)
        as next_attempt_at,
    o."locked_by"::text as locked_by,
    case when o."locked_until" > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when o."locked_until" < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else o."locked_until" end as locked_until,
    o."last_error"::text as last_error, case when o."created_at" > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when o."created_at" < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else o."created_at" end as created_at,
    coalesce(case when o."updated_at" > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when o."updated_at" < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else o."updated_at" end, case when o."created_at" > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when o."created_at" < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else o."created_at" end)
        as updated_at,
    null::timestamptz as delivered_at
from "modkit_outbox_events" o
where ($1::text is null or o."namespace"::text = $1)
    and ($2::text[] is null or o."status"::text = any ($2))
    and ($3::text is null or o."topic"::text = $3)
    and $4::text is null
    and ($5::text is null or o."tenant_id"::text = $5)
    and ($6::text[] is null or o."id" = any ($6::text[]::uuid[]))
    and ($7::text is null or (o."created_at", o."id") > (
        select a."created_at", a."id" from "modkit_outbox_events" a where a."id" = $7::text::uuid
    ))
order by o."created_at", o."id"
limit $8;

-- replay
-- Begins dead rows again at their old place in the order. Guarded: a row that is no longer dead is left alone.
with chosen as materialized (
    select o."id" as id
    from "modkit_outbox_events" o
    where o."status" = 'dead'
        and ($1::text is null or o."namespace"::text = $1)
        and ($2::text is null or o."topic"::text = $2)
        and $3::text is null
        and ($4::text is null or o."tenant_id"::text = $4)
        and ($5::text[] is null or o."id" = any ($5::text[]::uuid[]))
    order by o."created_at", o."id"
    limit $6
    -- Waiting: past a row that is locked, later ones of its key would come before it.
    for update
)
update "modkit_outbox_events" o
set "status" = 'pending'
    , "attempts" = 0
    , "next_attempt_at" = now()
    , "updated_at" = now()
where o."id" = any (array(select id from chosen))
returning o."id"::text as id;

-- discard
-- Removes dead rows for good. Guarded: a row that is no longer dead is left alone.
with chosen as materialized (
    select o."id" as id
    from "modkit_outbox_events" o
    where o."status" = 'dead'
        and ($1::text is null or o."namespace"::text = $1)
        and ($2::text is null or o."topic"::text = $2)
        and $3::text is null
        and ($4::text is null or o."tenant_id"::text = $4)
        and ($5::text[] is null or o."id" = any ($5::text[]::uuid[]))
    order by o."created_at", o."id"
    limit $6
    for update
)
delete from "modkit_outbox_events" o
where o."id" = any (array(select id from chosen))
returning o."id"::text as id;

-- settle
-- Applies changes to rows that are still held: under their token, or by locks of this transaction. The ids that come back
-- were settled. What changes is decided before; null leaves a column as it is. Times are the statement's: a transaction
-- that held its rows while they were published began long ago.
--   $1 ids  $2 tokens  $3 new states  $4 added to attempts  $5 waits in ms  $6 errors  $7 whether delivered
--   $8 whether a dead letter is written  $9 versions
with settled as (
    update "modkit_outbox_events" o
    set "status" = case s.status
            when 'pending' then 'pending' when 'waiting' then 'pending'
            when 'delivered' then 'delivered' when 'dead' then 'dead'
            else o."status" end
        , "attempts" = coalesce(o."attempts", 0) + s.attempts
        , "next_attempt_at" = case when s.delay_ms is null then o."next_attempt_at"
            else statement_timestamp() + s.delay_ms * interval '1 millisecond'
            end
        , "locked_by" = null
        , "locked_until" = null
        , "last_error" = coalesce(s.error, o."last_error")
        , "updated_at" = statement_timestamp()
    from unnest($1::text[]::uuid[], $2::text[], $3::text[], $4::integer[], $5::bigint[], $6::text[],
            $7::boolean[], $8::boolean[], $9::bigint[])
        as s (id, token, status, attempts, delay_ms, error, delivered, dead_letter, version)
    where o."id" = s.id
        and o."locked_by"::text = s.token and o."status" = 'processing'
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
from "modkit_outbox_events" o
where o."status" in ('pending')
    -- One that has used up its attempts is not claimed, and its table may refuse one more.
    and coalesce(o."attempts", 0) = 0
    -- Those that have an index of their own.
    and o."namespace"::text = $2
    and ($3::text[] is null or o."topic"::text = any ($3))
    and ($4::text is null or o."tenant_id"::text = $4)
-- By that index, and not past all that was delivered until some are found.
limit $1
for update skip locked;

-- claim_unordered
-- Takes rows in the table's order, skipping what others hold; keys are ignored.
--   $1 namespace  $2 max attempts  $3 topics  $4 tenant  $5 limit  $6 max bytes  $7 proof of the claim  $8 lease in ms
--   $9 whether rows of vanished workers are wanted, and else pending ones  $10 rows that are left out
--   $11 worker, where the table says who has a row
with pending as (
    select o."id" as id, o."created_at" as order_0, o."id" as order_1, coalesce(octet_length(convert_to(o."payload"::text, 'UTF8')), 0) as bytes
    from "modkit_outbox_events" o
    where not $9::boolean and o."status" in ('pending')
        and (o."next_attempt_at" is null
    or o."next_attempt_at" <= now())
        and coalesce(o."attempts", 0) < $2::integer
        and o."id" not in (select unnest($10::text[]::uuid[]))
        and o."namespace"::text = $1
    and ($3::text[] is null or o."topic"::text = any ($3))
    and ($4::text is null or o."tenant_id"::text = $4)
    order by o."created_at", o."id"
    limit $5
    for update skip locked
),
expired as (
    select o."id" as id, o."created_at" as order_0, o."id" as order_1, coalesce(octet_length(convert_to(o."payload"::text, 'UTF8')), 0) as bytes
    from "modkit_outbox_events" o
    where $9 and o."status" = 'processing'
        and (o."locked_until" is null or o."locked_until" < now())
        and coalesce(o."attempts", 0) < $2::integer
        and o."id" not in (select unnest($10::text[]::uuid[]))
        and o."namespace"::text = $1
    and ($3::text[] is null or o."topic"::text = any ($3))
    and ($4::text is null or o."tenant_id"::text = $4)
    order by o."created_at", o."id"
    limit $5
    for update skip locked
),
picked as (
    select id
    from (
        select id, bytes, sum(bytes) over (order by c.order_0, c.order_1 rows unbounded preceding) - bytes as bytes_before
        from (select * from pending union all select * from expired) c
    ) measured
    where bytes_before = 0 or bytes_before + bytes <= $6
)
, taken as (
    update "modkit_outbox_events" o
    set "status" = 'processing', "attempts" = coalesce(o."attempts", 0) + 1,
        "locked_by" = $7::text::uuid
        , "locked_until" = now() + $8::bigint * interval '1 millisecond'
        , "updated_at" = now()
    where o."id" = any (array(select id from picked)) and $8::bigint is not null
    returning o."created_at" as order_0, o."id" as order_1, null::bigint::bigint as seq, o."id"::text as id, null::text as event_id, o."namespace"::text as namespace, o."topic"::text as topic, null::text as ordering_key, o."tenant_id"::text as tenant, o."dedupe_key"::text as dedupe_key, null::text as event_type, null::text as source, null::text as aggregate_type, null::text as aggregate_id, null::text as content_type, convert_to(o."payload"::text, 'UTF8') as payload, null::text as headers, null::bytea as content_hash,
        o."attempts"::bigint as attempts, null::bigint::bigint as max_attempts,
        null::bigint as version, case when o."created_at" > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when o."created_at" < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else o."created_at" end as created_at
)
select * from taken t order by t.order_0, t.order_1;

-- extend
-- Prolongs leases that are still held under the token. Where a table only says since when a row is held, that is now.
--   $1 ids  $2 token  $3 lease in ms
update "modkit_outbox_events" o
set "locked_until" = now() + $3::bigint * interval '1 millisecond'
    , "updated_at" = now()
where o."id" = any ($1::text[]::uuid[]) and o."locked_by"::text = $2
    and o."status" = 'processing'
returning o."id"::text as id;

-- lock_held
-- Locks rows that are still held under their token, but for those that another transaction has locked.
--   $1 ids  $2 tokens
select o."id"::text as id
from "modkit_outbox_events" o
join unnest($1::text[]::uuid[], $2::text[]) as s (id, token)
    on o."id" = s.id and o."locked_by"::text = s.token
where o."status" = 'processing'
order by o."id"
for update of o skip locked;

-- find_held
-- Finds rows that are still held under their token, locked or not.
--   $1 ids  $2 tokens  $3 versions
select o."id"::text as id
from "modkit_outbox_events" o
join unnest($1::text[]::uuid[], $2::text[], $3::bigint[]) as s (id, token, version)
    on o."id" = s.id and o."locked_by"::text = s.token
where o."status" = 'processing';

-- lock_claims
-- Serialises the ordered claims of one outbox until the end of the transaction. Another claim may take its time; whoever has
-- locked the table as a whole is not waited for as long.
select set_config('lock_timeout', '1s', true) from pg_advisory_xact_lock(hashtextextended(-- The table itself, whatever path leads to it.
    'posthaste:' || $2::text::regclass::oid::text || ':' || $1::text, 0));

-- trial_claim
-- Claims rows that are locked: to try verdicts on them, or to find out whose claim is refused. It is rolled back.
--   $1 ids  $2 proof of the claim  $3 lease in ms  $4 worker, where the table says who has a row
update "modkit_outbox_events" o
set "status" = 'processing', "attempts" = coalesce(o."attempts", 0) + 1,
    "locked_by" = $2::text::uuid
    , "locked_until" = now() + $3::bigint * interval '1 millisecond'
    , "updated_at" = now()
where o."id" = any ($1::text[]::uuid[]) and $3::bigint is not null
returning o."id"::text as id;

-- purge_dead
-- Removes dead rows past their retention, those that died first before the others. Guarded: a row that is no longer dead is
-- left alone.
--   $1 age in ms  $2 limit  $3 namespace, or null for all
with chosen as materialized (
    select o."id" as id
    from "modkit_outbox_events" o
    where o."status" = 'dead'
        and o."updated_at" < now() - $1::bigint * interval '1 millisecond'
        and ($3::text is null or o."namespace"::text = $3)
    order by o."updated_at"
    limit $2
    for update skip locked
)
delete from "modkit_outbox_events" o
where o."id" = any (array(select id from chosen))
returning o."id"::text as id;

-- topic_gauges
-- The topics of the oldest pending messages, those with the most first.
--   $1 namespace  $2 how many messages are looked at
with pending as (
    select o."topic"::text as topic, case when o."created_at" > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when o."created_at" < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else o."created_at" end as created_at
    from "modkit_outbox_events" o
    where o."status" in ('pending') and o."namespace"::text = $1
    order by o."created_at", o."id"
    limit $2
)
select coalesce(topic, '') as topic, count(*) as pending,
    case when isfinite(min(created_at)) then extract(epoch from now() - min(created_at)) else 0 end::float8 as oldest_seconds
from pending
group by 1
order by count(*) desc, 1;

-- sweep
-- Gives up rows that have used all their attempts without a verdict.
--   $1 namespace  $2 max attempts  $3 topics  $4 tenant  $5 the error of a row that has none  $6 added to attempts of a row
--   that was claimed
with exhausted as materialized (
select o."id" as id
    from "modkit_outbox_events" o
    where o."status" in ('pending' , 'processing') and coalesce(o."attempts", 0) > 0
        and o."attempts" >= $2::integer
        and (o."status" in ('pending')
            or o."locked_until" is null or o."locked_until" < now())
        and o."namespace"::text = $1
    and ($3::text[] is null or o."topic"::text = any ($3))
    and ($4::text is null or o."tenant_id"::text = $4)
),
locked as materialized (
    select o."id" as id
    from "modkit_outbox_events" o
    where o."id" = any (array(select id from exhausted))
        and o."attempts" >= $2
        and (o."status" in ('pending') or (o."status" = 'processing' and (o."locked_until" is null or o."locked_until" < now())))
    for update skip locked
),
swept as (
    update "modkit_outbox_events" o
    set "status" = 'dead'
        , "attempts" = o."attempts" + case when o."status" = 'processing' then $6 else 0 end
        , "locked_by" = null
        , "locked_until" = null
        , "last_error" = coalesce(o."last_error", $5)
        , "updated_at" = now()
    where o."id" = any (array(select id from locked)) and $5::text is not null and $6::integer is not null
    returning o."id"::text as id
)
select id from swept;

-- probe_expired
-- What crashed workers left behind: the most attempts among rows that may be tried again, and how many may not.
select
    max(o."attempts") filter (where o."attempts" < $2::integer)::bigint as most_tried,
    count(*) filter (where o."attempts" >= $2::integer) as exhausted
from "modkit_outbox_events" o
where o."namespace"::text = $1
    and o."status" = 'processing'
    and coalesce(o."locked_until" < now(), true)
    and ($3::text[] is null or o."topic"::text = any ($3))
    and ($4::text is null or o."tenant_id"::text = $4);

-- insert
-- Writes rows in the caller's transaction into a table that has its own rules about what may be there twice. A row that
-- breaks one of them writes nothing; what comes back was written.
--
-- The clock's time, not that of the transaction's start: whoever waited for another's business row comes after it. Rows of
-- one call are a microsecond apart: a table that is ordered by time keeps the order of the call, whatever their ids are.
with clock as materialized (select clock_timestamp() as moment)
insert into "modkit_outbox_events" (
    "payload", "status"
    , "id"
    , "namespace"
    , "topic"
    , "tenant_id"
    , "dedupe_key"
    , "attempts"
    , "next_attempt_at"
    , "created_at"
    , "updated_at"
)
select i.payload::jsonb, 'pending'
    , i.id::uuid
    , i.namespace::text
    , i.topic::text
    , i.tenant::uuid
    , i.dedupe_key::text
    , 0
    , greatest(c.moment, i.not_before::timestamptz)
    , c.moment + (i.place - 1) * interval '1 microsecond'
    , c.moment
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
    from "modkit_outbox_events" o
    where (o."dedupe_key" = w.dedupe_key::text
            and o."namespace"::text = w.namespace
            and o."topic"::text = w.topic)
        or o."id" = w.id::uuid
    limit 1
) f
order by w.place;

-- lock_dead
-- Locks a dead row, so that its letter is not written twice.
--   $1 id
select o."id"::text as id
from "modkit_outbox_events" o
where o."id" = $1::text::uuid and o."status" = 'dead'
for update;

-- restore
-- Makes a row that was inserted in this transaction the dead one that it was.
--   $1 its id  $2 the id that it had  $3 attempts  $4 error  $5 time of the first insert  $6 dedupe key  $7 hash
update "modkit_outbox_events" o
set "status" = 'dead'
    , "attempts" = $3
    , "last_error" = $4
    , "created_at" = $5::timestamptz
    , "dedupe_key" = $6::text::text
where o."id" = $1::text::uuid
    and $2::text is not null and $3::integer is not null and $4::text is not null and $5::timestamptz is not null
    and ($6::text is null or true) and ($7::text is null or true);

-- find_lock_holders
-- Says who has locked rows: a row that is locked has the number of the transaction, which holds a lock on that number.
--   $1 ids
select o."id"::text as id, 'session ' || l.pid || coalesce(' (' || nullif(a.application_name, '') || ')', '') as holder
from "modkit_outbox_events" o
join pg_locks l on l.locktype = 'transactionid' and l.transactionid = o.xmax and l.granted and l.mode = 'ExclusiveLock'
left join pg_stat_activity a on a.pid = l.pid
where o."id" = any ($1::text[]::uuid[]);

