-- lock_claims
-- Serialises the ordered claims of one outbox, until the lock is released or the connection ends.
--   $1 schema, or none for that of the connection  $2 table  $3 namespace  $4 how many seconds to wait for it
select get_lock(concat('posthaste:', left(sha2(concat_ws('/', coalesce($1, database()), $2, $3), 256), 40)), $4) as locked;

-- unlock_claims
-- Ends what lock_claims began.
do release_lock(concat('posthaste:', left(sha2(concat_ws('/', coalesce($1, database()), $2, $3), 256), 40)));

-- find_claimable
-- Finds rows to take, in order and never past an earlier row of the same key. It only reads: what it finds is locked by
-- its primary key and looked at again, so that no scan locks a row that is not taken.
--   $1 namespace  $2 max attempts  $3 whether all topics are served  $4 topics  $5 tenant  $6 limit
--   $7 whether rows of vanished workers are wanted, and else pending ones  $8 whether keys are ordered
--   $9 how many pending rows are looked at  $10 whether any topic blocks  $11 whether dead heads block by default
--   $12 topics with the other policy  $13 among how many pending rows those are chosen
--   $14 whether all lanes are looked at  $15 lanes that are passed over, because nothing of them can be taken
--   $16 rows that are left out, if any; they are never taken, and hold back their keys
--
-- Sums, where one would rather say min and max: MariaDB works these out anew for every row of a frame, so that a key
-- with many rows would take the square of the time. For the same reason rows without a key are not a lane together.
select id, topic, ordering_key
from (
    select
        id, topic, ordering_key, x.order_0, x.order_1, case when $7 then expired else due end as claimable,
        -- All earlier rows of the key go along. A retry goes alone: if it fails again, nothing after it is touched.
        coalesce(sum(case when $7 then not expired else waits or not due end) over (
            partition by topic, ordering_key, keyless order by x.order_0, x.order_1 rows between unbounded preceding and 1 preceding
        ), 0) = 0 as unbroken,
        -- The key is in somebody's hands, also what lies before the row that is.
        sum(live) over (partition by topic, ordering_key, keyless) > 0 as in_flight,
        -- Beyond the pending rows that are looked at there may be earlier ones of the key.
        coalesce(sum(pending) over (
            order by x.order_0, x.order_1 rows between unbounded preceding and 1 preceding
        ), 0) as pending_before
    from (
        (
            select
                id, topic, ordering_key, case when ordering_key is null then id end as keyless, w.order_0, w.order_1,
                1 as pending, 0 as live, 0 as expired, due, waits
            from (
                select
                    cast(o.`id` as char) as id, null as topic, cast(o.`aggregate_id` as char) as ordering_key, o.`occurred_at` as order_0, o.`id` as order_1,
                    coalesce(o.`id` not in ($16), 1)
                        and coalesce(o.`retry_count`, 0) < $2
                        and coalesce(convert_tz(o.`next_attempt_at`, @@session.time_zone, '+00:00') <= utc_timestamp(6), 1) as due,
                    coalesce(convert_tz(o.`next_attempt_at`, @@session.time_zone, '+00:00') > convert_tz(o.`occurred_at`, @@session.time_zone, '+00:00'), 0) as waits
                from `outbox_events` o
                where o.`status` in ('PENDING')
                order by o.`occurred_at`, o.`id`
                limit $13
            ) w
            where $14 or ordering_key is null or (coalesce(topic, ''), ordering_key) not in ($15)
            order by w.order_0, w.order_1
            limit $9
        )
        union all
        (
            -- A dead head that blocks is a row that never passes.
            select cast(o.`id` as char), null, cast(o.`aggregate_id` as char), null, o.`occurred_at` as order_0, o.`id` as order_1, 0, 0, 0, 0, 0
            from `outbox_events` o
            where $10 and o.`status` = 'FAILED' and cast(o.`aggregate_id` as char) is not null
                and $11
        )
    ) x
) y
where claimable and (not $8 or ordering_key is null or (unbroken and not in_flight and pending_before < $9))
order by y.order_0, y.order_1
limit $6;

-- find_lanes
-- The lanes of the pending rows that find_claimable looked at, those with most rows first, and how many rows there were.
--   $1 namespace  $2 unused  $3 whether all topics are served  $4 topics  $5 tenant  $6 limit
--   $7 how many pending rows were looked at  $8 among how many they were chosen
--   $9 whether all lanes were looked at  $10 lanes that were passed over
select topic, ordering_key, cast(sum(count(*)) over () as signed) as seen
from (
    select topic, ordering_key
    from (
        select coalesce(null, '') as topic, cast(o.`aggregate_id` as char) as ordering_key, o.`occurred_at` as order_0, o.`id` as order_1
        from `outbox_events` o
        where o.`status` in ('PENDING')
        order by o.`occurred_at`, o.`id`
        limit $8
    ) w
    where $9 or ordering_key is null or (topic, ordering_key) not in ($10)
    order by w.order_0, w.order_1
    limit $7
) looked_at
group by topic, ordering_key
order by ordering_key is null, count(*) desc
limit $6;

-- count_open
-- How many pending rows there are, up to a number.
--   $1 namespace  $2 unused  $3 whether all topics are served  $4 topics  $5 tenant  $6 the number
select count(*) as open
from (
    select 1
    from `outbox_events` o
    where o.`status` in ('PENDING')
    limit $6
) counted;

-- lock_claimable
-- Locks rows that were found, unless somebody else has them or they can no longer be claimed.
--   $1 ids  $2 max attempts  $3 whether they come from vanished workers
select cast(o.`id` as char) as id, cast(coalesce(octet_length(o.`payload`), 0) as signed) as bytes
from `outbox_events` o
where o.`id` in ($1)
    and coalesce(o.`retry_count`, 0) < $2
    and case when $3
        then false
        else o.`status` in ('PENDING') and coalesce(convert_tz(o.`next_attempt_at`, @@session.time_zone, '+00:00') <= utc_timestamp(6), 1)
    end
for update skip locked;

-- read_claimed
-- What was claimed, in order.
--   $1 ids
select
    null as seq, cast(o.`id` as char) as id, null as event_id, null as namespace, null as topic, cast(o.`aggregate_id` as char) as ordering_key, null as tenant, null as dedupe_key, o.`event_type` as event_type, null as source, o.`aggregate_type` as aggregate_type, cast(o.`aggregate_id` as char) as aggregate_id, null as content_type, cast(cast(o.`payload` as char) as binary) as payload, null as headers, null as content_hash, o.`retry_count` as attempts,
    null as max_attempts, null as version, convert_tz(o.`occurred_at`, @@session.time_zone, '+00:00') as created_at
from `outbox_events` o
where o.`id` in ($1)
order by o.`occurred_at`, o.`id`;

-- settle
-- Applies one change to locked rows. It is decided before; null leaves a column as it is.
--   $1 ids  $2 new state  $3 added to attempts  $4 wait in ms  $5 error  $6 whether delivered
update `outbox_events`
set `retry_count` = coalesce(`retry_count`, 0) + $3,
    `next_attempt_at` = case when $4 is null then `next_attempt_at`
        -- What waits lies strictly after created_at: that is what marks a row as waiting.
        else convert_tz(greatest(
            timestampadd(microsecond, $4 * 1000, utc_timestamp(6)),
            -- Nothing is worked out from what is past: it may be no date, which the server refuses.
            case when convert_tz(`occurred_at`, @@session.time_zone, '+00:00') >= utc_timestamp(6) then timestampadd(microsecond, 1, convert_tz(`occurred_at`, @@session.time_zone, '+00:00')) else utc_timestamp(6) end
        ), '+00:00', @@session.time_zone) end,
    `last_error` = coalesce($5, `last_error`),
    `processed_at` = case when $6 then convert_tz(utc_timestamp(6), '+00:00', @@session.time_zone) end,
    `status` = case $2 when 'pending' then 'PENDING' when 'waiting' then 'PENDING'
        when 'delivered' then 'PUBLISHED' when 'dead' then 'FAILED' else `status` end
where `id` in ($1);

-- stats
-- Counts what is not delivered, up to a number of each kind. The oldest pending row is the first in order, or one of those
-- that were counted.
--   $1 namespace  $2 how many rows of a kind are counted
select
    pending.n as pending, cast(coalesce(pending.not_due, 0) as signed) as waiting, leased.n as processing, given_up.n as dead,
    cast(coalesce(timestampdiff(microsecond, least(
        coalesce(pending.oldest, leased.oldest), coalesce(leased.oldest, pending.oldest),
        coalesce(head.oldest, pending.oldest, leased.oldest)
    ), utc_timestamp(6)), 0) as signed) as oldest_us
from (
    select count(*) as n, sum(counted.not_due) as not_due, min(counted.oldest) as oldest
    from (
        select convert_tz(o.`next_attempt_at`, @@session.time_zone, '+00:00') > utc_timestamp(6) as not_due,
            convert_tz(o.`occurred_at`, @@session.time_zone, '+00:00') as oldest
        from `outbox_events` o
        where o.`status` in ('PENDING')
        limit $2
    ) counted
) pending,
(
    select min(counted.oldest) as oldest
    from (
        select convert_tz(o.`occurred_at`, @@session.time_zone, '+00:00') as oldest
        from `outbox_events` o
        where o.`status` in ('PENDING')
        order by o.`occurred_at`, o.`id`
        limit 1
    ) counted
) head,
(
    select count(*) as n, min(counted.oldest) as oldest
    from (
        select convert_tz(o.`occurred_at`, @@session.time_zone, '+00:00') as oldest
        from `outbox_events` o
        where false
        limit $2
    ) counted
) leased,
(
    select count(*) as n
    from (
        select 1
        from `outbox_events` o
        where o.`status` = 'FAILED'
        limit $2
    ) counted
) given_up;

-- purgeable
-- Counts what a purge would remove: delivered rows and dead rows past their retention, and dedupe keys whose window is over
-- and whose row is gone by then.
--   $1 age of delivered rows in ms  $2 namespace, or null for all  $3 age of dead rows in ms
select (
    select count(*)
    from `outbox_events` o
    where o.`status` = 'PUBLISHED'
        and convert_tz(o.`processed_at`, @@session.time_zone, '+00:00')
            < timestampadd(microsecond, -1000 * $1, utc_timestamp(6))
) as delivered, cast(0 * $3 as signed) as dead, cast(0 as signed) as dedupe;

-- list
-- Rows as an operator sees them.
--   $1 namespace  $2 whether rows in any state are wanted  $3 labels of the state  $4 topic  $5 key  $6 tenant
--   $7 whether rows of any id are wanted  $8 ids  $9 the row after which the list goes on  $10 limit
select
    null as seq, cast(o.`id` as char) as id, null as event_id, null as namespace, null as topic, cast(o.`aggregate_id` as char) as ordering_key, null as tenant, null as dedupe_key, o.`event_type` as event_type, null as source, o.`aggregate_type` as aggregate_type, cast(o.`aggregate_id` as char) as aggregate_id, null as content_type, cast(cast(o.`payload` as char) as binary) as payload, null as headers, null as content_hash, null as max_attempts, null as version,
    o.`status` as status, o.`retry_count` as attempts, convert_tz(o.`next_attempt_at`, @@session.time_zone, '+00:00') as next_attempt_at,
    null as locked_by,
    null as locked_until, o.`last_error` as last_error, convert_tz(o.`occurred_at`, @@session.time_zone, '+00:00') as created_at,
    null as updated_at,
    convert_tz(o.`processed_at`, @@session.time_zone, '+00:00') as delivered_at
from `outbox_events` o
where ($2 or o.`status` in ($3))
    and ($5 is null or o.`aggregate_id` = $5)
    and ($7 or o.`id` in ($8))
    and ($9 is null or (o.`occurred_at`, o.`id`) > (select a.`occurred_at`, a.`id` from `outbox_events` a where a.`id` = $9))
order by o.`occurred_at`, o.`id`
limit $10;

-- find_dead
-- Finds dead rows that an operator means, in order.
--   $1 namespace  $2 topic  $3 key  $4 tenant  $5 whether rows of any id are wanted  $6 ids  $7 limit
select cast(o.`id` as char) as id
from `outbox_events` o
where o.`status` = 'FAILED'
    and ($3 is null or o.`aggregate_id` = $3)
    and ($5 or o.`id` in ($6))
order by o.`occurred_at`, o.`id`
limit $7;

-- lock_dead
-- Locks them, unless they are no longer dead. Not past a row that is locked: later ones of its key would come before it.
--   $1 ids
select cast(o.`id` as char) as id
from `outbox_events` o
where o.`id` in ($1) and o.`status` = 'FAILED'
order by o.`occurred_at`, o.`id`
for update nowait;

-- replay
-- Begins locked dead rows again at their old place in the order.
--   $1 ids
update `outbox_events`
set `retry_count` = 0,
    -- Due at once, but waiting by kind: followers that wait already must not overtake it.
    `next_attempt_at` = convert_tz(greatest(
        utc_timestamp(6),
        -- Nothing is worked out from what is past: it may be no date, which the server refuses.
        case when convert_tz(`occurred_at`, @@session.time_zone, '+00:00') >= utc_timestamp(6) then timestampadd(microsecond, 1, convert_tz(`occurred_at`, @@session.time_zone, '+00:00')) else utc_timestamp(6) end
    ), '+00:00', @@session.time_zone),
    `status` = 'PENDING'
where `id` in ($1);

-- discard
-- Removes locked dead rows for good.
--   $1 ids
delete from `outbox_events` where `id` in ($1);

-- check
-- Names every column that the table map does, so that a wrong one is found before the first claim.
select `id`, `payload`, `status`
    , `aggregate_id`
    , `event_type`
    , `aggregate_type`
    , `aggregate_id`
    , `retry_count`
    , `next_attempt_at`
    , `last_error`
    , `occurred_at`
    , `processed_at`
from `outbox_events`
where false and `status` in ('PENDING', 'PUBLISHED', 'FAILED' );

-- find_trial_row
-- Rows of a scope on which verdicts can be tried.
--   $1 namespace  $2 unused  $3 whether all topics are served  $4 topics  $5 tenant
select cast(o.`id` as char) as id
from `outbox_events` o
where o.`status` in ('PENDING')
limit 100;

-- lock_trial_row
-- Locks them, unless another transaction has them.
--   $1 ids
select cast(o.`id` as char) as id from `outbox_events` o where o.`id` in ($1) and o.`status` in ('PENDING') for update skip locked;

-- find_delivered
-- Finds delivered rows past their retention, oldest first, and locks them, but for those that another transaction has
-- locked. Their age counts from the best time that the table has.
--   $1 age in ms  $2 limit  $3 namespace, or null for all
select cast(o.`id` as char) as id
from `outbox_events` o
where o.`status` = 'PUBLISHED'
    and convert_tz(o.`processed_at`, @@session.time_zone, '+00:00')
        < timestampadd(microsecond, -1000 * $1, utc_timestamp(6))
order by o.`processed_at`
limit $2
for update skip locked;

-- purge_delivered
-- Removes them.
--   $1 ids
delete from `outbox_events` where `id` in ($1) and `status` = 'PUBLISHED';

-- find_exhausted
-- Finds rows that have used all their attempts without a verdict.
--   $1 namespace  $2 max attempts  $3 whether all topics are served  $4 topics  $5 tenant  $6 limit
select cast(o.`id` as char) as id
from `outbox_events` o
where o.`status` in ('PENDING' )
    and coalesce(o.`retry_count`, 0) >= $2
limit $6;

-- lock_exhausted
-- Locks such rows, unless another transaction has them or they are no longer such.
--   $1 ids  $2 max attempts
select cast(o.`id` as char) as id
from `outbox_events` o
where o.`id` in ($1) and o.`status` in ('PENDING' )
    and coalesce(o.`retry_count`, 0) >= $2
for update skip locked;

-- mark_dead
-- Gives up locked rows that have used all their attempts.
--   $1 ids  $2 error, where there is none yet  $3 added to attempts of a row that was claimed
update `outbox_events`
set
    `last_error` = coalesce(`last_error`, $2),
    `status` = 'FAILED'
where `id` in ($1);

-- restore
-- Makes a row that was inserted in this transaction the dead one that it was.
--   $1 its id  $2 the id that it had  $3 attempts  $4 error  $5 time of the first insert, in microseconds since 1970
--   $6 dedupe key  $7 hash
update `outbox_events`
set
    `retry_count` = $3,
    `last_error` = $4,
    `occurred_at` = convert_tz(timestampadd(microsecond, $5, cast('1970-01-01' as datetime(6))), '+00:00', @@session.time_zone),
    `status` = 'FAILED'
where `id` = $1;

-- insert
-- Writes a row in the caller's transaction into a table that has its own rules about what may be there twice.
--   $1 id  $2 event id  $3 namespace  $4 topic  $5 key  $6 tenant  $7 dedupe key  $8 event type  $9 source
--   $10 aggregate type  $11 aggregate id  $12 content type  $13 payload  $14 headers  $15 hash
--   $16 not before, in microseconds since 1970
insert into `outbox_events` (
    `payload`
    , `id`
    , `aggregate_id`
    , `event_type`
    , `aggregate_type`
    , `retry_count`
    , `next_attempt_at`
    , `occurred_at`
    , `status`
) values (
    $13
    , $1
    , $5
    , $8
    , $10
    , 0
    -- What is due now is due since the last whole second: a column without fractions would be rounded into the future.
    , convert_tz(coalesce(nullif(
        greatest(timestampadd(microsecond, $16, cast('1970-01-01' as datetime(6))), utc_timestamp(6)), utc_timestamp(6)
    ), utc_timestamp()), '+00:00', @@session.time_zone)
    , convert_tz(utc_timestamp(6), '+00:00', @@session.time_zone)
    , 'PENDING'
);

-- find_by_dedupe_key
-- Finds the row that kept another from being written: the one with its dedupe key. Locking, because a plain read may be one
-- of the past; by one index alone, because a wider search would wait for rows that others write, who may wait for us.
--   $1 unused  $2 unused  $3 namespace  $4 topic  $5 unused  $6 unused  $7 dedupe key
select 1 as place, cast(o.`id` as char) as id, false as is_new
from `outbox_events` o
where false
limit 1
lock in share mode;

-- find_by_event_id
-- Finds the row that kept another from being written: the one with its event id. Locking, because a plain read may be one
-- of the past; by one index alone, because a wider search would wait for rows that others write, who may wait for us.
--   $1 unused  $2 event id
select 1 as place, cast(o.`id` as char) as id, false as is_new
from `outbox_events` o
where false
limit 1
lock in share mode;

-- find_by_id
-- Finds the row that kept another from being written: the one with its id. Locking, because a plain read may be one of the
-- past; by one index alone, because a wider search would wait for rows that others write, who may wait for us.
--   $1 id
select 1 as place, cast(o.`id` as char) as id, false as is_new
from `outbox_events` o
where o.`id` = $1
limit 1
lock in share mode;

-- last_id
-- The id that the server gave to the row that was written last.
select 1 as place, cast(last_insert_id() as char) as id, true as is_new;

