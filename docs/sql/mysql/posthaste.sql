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
        id, topic, ordering_key, x.order_0, case when $7 then expired else due end as claimable,
        -- All earlier rows of the key go along. A retry goes alone: if it fails again, nothing after it is touched.
        coalesce(sum(case when $7 then not expired else waits or not due end) over (
            partition by topic, ordering_key, keyless order by x.order_0 rows between unbounded preceding and 1 preceding
        ), 0) = 0 as unbroken,
        -- The key is in somebody's hands, also what lies before the row that is.
        sum(live) over (partition by topic, ordering_key, keyless) > 0 as in_flight,
        -- Beyond the pending rows that are looked at there may be earlier ones of the key.
        coalesce(sum(pending) over (
            order by x.order_0 rows between unbounded preceding and 1 preceding
        ), 0) as pending_before
    from (
        (
            select
                id, topic, ordering_key, case when ordering_key is null then id end as keyless, w.order_0,
                1 as pending, 0 as live, 0 as expired, due, waits
            from (
                select
                    cast(o.`id` as char) as id, o.`topic` as topic, o.`ordering_key` as ordering_key, o.`seq` as order_0,
                    coalesce(o.`id` not in ($16), 1)
                        and coalesce(o.`attempts`, 0) < $2
                        and coalesce(o.`next_attempt_at` <= utc_timestamp(6), 1) as due,
                    coalesce(o.`next_attempt_at` > o.`created_at`, 0) as waits
                from `posthaste_outbox` o
                where o.`status` in ('pending')
                    and o.`namespace` = $1
and ($3 or o.`topic` in ($4))
and ($5 is null or o.`tenant` = $5)
                order by o.`seq`
                limit $13
            ) w
            where $14 or ordering_key is null or (coalesce(topic, ''), ordering_key) not in ($15)
            order by w.order_0
            limit $9
        )
        union all
        (
            select
                cast(o.`id` as char), o.`topic`, o.`ordering_key`, case when o.`ordering_key` is null then cast(o.`id` as char) end,
                o.`seq` as order_0,
                0,
                coalesce(o.`locked_until` >= utc_timestamp(6), 1),
                o.`locked_until` < utc_timestamp(6)
                    and coalesce(o.`attempts`, 0) < $2
                    and coalesce(o.`id` not in ($16), 1)
                    and ($3 or o.`topic` in ($4))
                    and ($5 is null or coalesce(o.`tenant` = $5, 0)),
                0, 0
            from `posthaste_outbox` o
            where o.`status` = 'processing'
                and o.`namespace` = $1
        )
        union all
        (
            -- A dead head that blocks is a row that never passes.
            select cast(o.`id` as char), o.`topic`, o.`ordering_key`, null, o.`seq` as order_0, 0, 0, 0, 0, 0
            from `posthaste_outbox` o
            where $10 and o.`status` = 'dead' and o.`ordering_key` is not null
                and o.`namespace` = $1
                and (o.`topic` in ($12)) <> $11
        )
    ) x
) y
where claimable and (not $8 or ordering_key is null or (unbroken and not in_flight and pending_before < $9))
order by y.order_0
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
        select coalesce(o.`topic`, '') as topic, o.`ordering_key` as ordering_key, o.`seq` as order_0
        from `posthaste_outbox` o
        where o.`status` in ('pending')
            and o.`namespace` = $1
and ($3 or o.`topic` in ($4))
and ($5 is null or o.`tenant` = $5)
        order by o.`seq`
        limit $8
    ) w
    where $9 or ordering_key is null or (topic, ordering_key) not in ($10)
    order by w.order_0
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
    from `posthaste_outbox` o
    where o.`status` in ('pending')
        and o.`namespace` = $1
and ($3 or o.`topic` in ($4))
and ($5 is null or o.`tenant` = $5)
    limit $6
) counted;

-- lock_claimable
-- Locks rows that were found, unless somebody else has them or they can no longer be claimed.
--   $1 ids  $2 max attempts  $3 whether they come from vanished workers
select cast(o.`id` as char) as id, cast(coalesce(octet_length(o.`payload`), 0) as signed) as bytes
from `posthaste_outbox` o
where o.`id` in ($1)
    and coalesce(o.`attempts`, 0) < $2
    and case when $3
        then o.`status` = 'processing' and o.`locked_until` < utc_timestamp(6)
        else o.`status` in ('pending') and coalesce(o.`next_attempt_at` <= utc_timestamp(6), 1)
    end
for update skip locked;

-- read_claimed
-- What was claimed, in order.
--   $1 ids
select
    o.`seq` as seq, cast(o.`id` as char) as id, null as event_id, o.`namespace` as namespace, o.`topic` as topic, o.`ordering_key` as ordering_key, o.`tenant` as tenant, o.`dedupe_key` as dedupe_key, o.`event_type` as event_type, o.`source` as source, o.`aggregate_type` as aggregate_type, o.`aggregate_id` as aggregate_id, o.`content_type` as content_type, o.`payload` as payload, cast(o.`headers` as char) as headers, o.`content_hash` as content_hash, o.`attempts` as attempts,
    null as max_attempts, null as version, o.`created_at` as created_at
from `posthaste_outbox` o
where o.`id` in ($1)
order by o.`seq`;

-- settle
-- Applies one change to locked rows. It is decided before; null leaves a column as it is.
--   $1 ids  $2 new state  $3 added to attempts  $4 wait in ms  $5 error  $6 whether delivered
update `posthaste_outbox`
set `attempts` = coalesce(`attempts`, 0) + $3,
    `next_attempt_at` = case when $4 is null then `next_attempt_at`
        -- What waits lies strictly after created_at: that is what marks a row as waiting.
        else greatest(
            timestampadd(microsecond, $4 * 1000, utc_timestamp(6)),
            -- Nothing is worked out from what is past: it may be no date, which the server refuses.
            case when `created_at` >= utc_timestamp(6) then timestampadd(microsecond, 1, `created_at`) else utc_timestamp(6) end
        ) end,
    `locked_by` = null,
    `lease_token` = null,
    `locked_until` = null,
    `last_error` = coalesce($5, `last_error`),
    `delivered_at` = case when $6 then utc_timestamp(6) end,
    `updated_at` = utc_timestamp(6),
    `status` = case $2 when 'pending' then 'pending' when 'waiting' then 'pending'
        when 'delivered' then 'delivered' when 'dead' then 'dead' else `status` end
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
        select o.`next_attempt_at` > utc_timestamp(6) as not_due,
            o.`created_at` as oldest
        from `posthaste_outbox` o
        where o.`status` in ('pending') and o.`namespace` = $1
        limit $2
    ) counted
) pending,
(
    select min(counted.oldest) as oldest
    from (
        select o.`created_at` as oldest
        from `posthaste_outbox` o
        where o.`status` in ('pending') and o.`namespace` = $1
        order by o.`seq`
        limit 1
    ) counted
) head,
(
    select count(*) as n, min(counted.oldest) as oldest
    from (
        select o.`created_at` as oldest
        from `posthaste_outbox` o
        where o.`status` = 'processing' and o.`namespace` = $1
        limit $2
    ) counted
) leased,
(
    select count(*) as n
    from (
        select 1
        from `posthaste_outbox` o
        where o.`status` = 'dead' and o.`namespace` = $1
        limit $2
    ) counted
) given_up;

-- purgeable
-- Counts what a purge would remove: delivered rows and dead rows past their retention, and dedupe keys whose window is over
-- and whose row is gone by then.
--   $1 age of delivered rows in ms  $2 namespace, or null for all  $3 age of dead rows in ms
select (
    select count(*)
    from `posthaste_outbox` o
    where o.`status` = 'delivered'
        and o.`delivered_at`
            < timestampadd(microsecond, -1000 * $1, utc_timestamp(6))
        and ($2 is null or o.`namespace` = $2)
) as delivered, (
    select count(*)
    from `posthaste_outbox` o
    where o.`status` = 'dead'
        and o.`updated_at` < timestampadd(microsecond, -1000 * $3, utc_timestamp(6))
        and ($2 is null or o.`namespace` = $2)
) as dead, (
    select count(*)
    from `posthaste_outbox_dedupe` d
    where d.expires_at <= utc_timestamp(6)
        and not exists (
            select 1
            from `posthaste_outbox` o
            where o.`id` = d.message_id
                and (
                    (
                        o.`status` = 'delivered'
                            and o.`delivered_at` < timestampadd(microsecond, -1000 * $1, utc_timestamp(6))
                        or o.`status` = 'dead'
                            and o.`updated_at` < timestampadd(microsecond, -1000 * $3, utc_timestamp(6))
                    )
                    and ($2 is null or o.`namespace` = $2)
                ) is not true
        )
) as dedupe;

-- list
-- Rows as an operator sees them.
--   $1 namespace  $2 whether rows in any state are wanted  $3 labels of the state  $4 topic  $5 key  $6 tenant
--   $7 whether rows of any id are wanted  $8 ids  $9 the row after which the list goes on  $10 limit
select
    o.`seq` as seq, cast(o.`id` as char) as id, null as event_id, o.`namespace` as namespace, o.`topic` as topic, o.`ordering_key` as ordering_key, o.`tenant` as tenant, o.`dedupe_key` as dedupe_key, o.`event_type` as event_type, o.`source` as source, o.`aggregate_type` as aggregate_type, o.`aggregate_id` as aggregate_id, o.`content_type` as content_type, o.`payload` as payload, cast(o.`headers` as char) as headers, o.`content_hash` as content_hash, null as max_attempts, null as version,
    o.`status` as status, o.`attempts` as attempts, o.`next_attempt_at` as next_attempt_at,
    cast(o.`locked_by` as char) as locked_by,
    o.`locked_until` as locked_until, o.`last_error` as last_error, o.`created_at` as created_at,
    o.`updated_at` as updated_at,
    o.`delivered_at` as delivered_at
from `posthaste_outbox` o
where ($2 or o.`status` in ($3))
    and ($1 is null or o.`namespace` = $1)
    and ($4 is null or o.`topic` = $4)
    and ($5 is null or o.`ordering_key` = $5)
    and ($6 is null or o.`tenant` = $6)
    and ($7 or o.`id` in ($8))
    and ($9 is null or (o.`seq`) > (select a.`seq` from `posthaste_outbox` a where a.`id` = $9))
order by o.`seq`
limit $10;

-- find_dead
-- Finds dead rows that an operator means, in order.
--   $1 namespace  $2 topic  $3 key  $4 tenant  $5 whether rows of any id are wanted  $6 ids  $7 limit
select cast(o.`id` as char) as id
from `posthaste_outbox` o
where o.`status` = 'dead'
    and ($1 is null or o.`namespace` = $1)
    and ($2 is null or o.`topic` = $2)
    and ($3 is null or o.`ordering_key` = $3)
    and ($4 is null or o.`tenant` = $4)
    and ($5 or o.`id` in ($6))
order by o.`seq`
limit $7;

-- lock_dead
-- Locks them, unless they are no longer dead. Not past a row that is locked: later ones of its key would come before it.
--   $1 ids
select cast(o.`id` as char) as id
from `posthaste_outbox` o
where o.`id` in ($1) and o.`status` = 'dead'
order by o.`seq`
for update nowait;

-- replay
-- Begins locked dead rows again at their old place in the order.
--   $1 ids
update `posthaste_outbox`
set `attempts` = 0,
    -- Due at once, but waiting by kind: followers that wait already must not overtake it.
    `next_attempt_at` = greatest(
        utc_timestamp(6),
        -- Nothing is worked out from what is past: it may be no date, which the server refuses.
        case when `created_at` >= utc_timestamp(6) then timestampadd(microsecond, 1, `created_at`) else utc_timestamp(6) end
    ),
    `updated_at` = utc_timestamp(6),
    `status` = 'pending'
where `id` in ($1);

-- discard
-- Removes locked dead rows for good.
--   $1 ids
delete from `posthaste_outbox` where `id` in ($1);

-- check
-- Names every column that the table map does, so that a wrong one is found before the first claim.
select `id`, `payload`, `status`
    , `seq`
    , `namespace`
    , `topic`
    , `ordering_key`
    , `tenant`
    , `dedupe_key`
    , `event_type`
    , `source`
    , `aggregate_type`
    , `aggregate_id`
    , `content_type`
    , `headers`
    , `content_hash`
    , `attempts`
    , `next_attempt_at`
    , `locked_by`
    , `lease_token`
    , `locked_until`
    , `last_error`
    , `created_at`
    , `updated_at`
    , `delivered_at`
from `posthaste_outbox`
where false and `status` in ('pending', 'delivered', 'dead' , 'processing');

-- find_trial_row
-- Rows of a scope on which verdicts can be tried.
--   $1 namespace  $2 unused  $3 whether all topics are served  $4 topics  $5 tenant
select cast(o.`id` as char) as id
from `posthaste_outbox` o
where o.`status` in ('pending')
    and o.`namespace` = $1
and ($3 or o.`topic` in ($4))
and ($5 is null or o.`tenant` = $5)
limit 100;

-- lock_trial_row
-- Locks them, unless another transaction has them.
--   $1 ids
select cast(o.`id` as char) as id from `posthaste_outbox` o where o.`id` in ($1) and o.`status` in ('pending') for update skip locked;

-- find_delivered
-- Finds delivered rows past their retention, oldest first, and locks them, but for those that another transaction has
-- locked. Their age counts from the best time that the table has.
--   $1 age in ms  $2 limit  $3 namespace, or null for all
select cast(o.`id` as char) as id
from `posthaste_outbox` o
where o.`status` = 'delivered'
    and o.`delivered_at`
        < timestampadd(microsecond, -1000 * $1, utc_timestamp(6))
    and ($3 is null or o.`namespace` = $3)
order by o.`delivered_at`
limit $2
for update skip locked;

-- purge_delivered
-- Removes them.
--   $1 ids
delete from `posthaste_outbox` where `id` in ($1) and `status` = 'delivered';

-- probe
-- What crashed workers left behind: the most attempts among rows that may be tried again, and how many may not.
--   $1 namespace  $2 max attempts  $3 whether all topics are served  $4 topics  $5 tenant
--
-- Without a derived table: where the server wants full groups, MariaDB takes an aggregate over one only once.
select
    cast(max(case when coalesce(o.`attempts`, 0) < $2
        then coalesce(o.`attempts`, 0) end) as signed) as most_tried,
    count(case when coalesce(o.`attempts`, 0) >= $2
        then 1 end) as exhausted
from `posthaste_outbox` o
where o.`status` = 'processing'
    and o.`locked_until` < utc_timestamp(6)
    and o.`namespace` = $1
and ($3 or o.`topic` in ($4))
and ($5 is null or o.`tenant` = $5);

-- lease
-- Takes locked rows under a lease and counts the attempt.
--   $1 ids  $2 worker  $3 fence  $4 lease in ms
update `posthaste_outbox`
set `attempts` = coalesce(`attempts`, 0) + 1,
    `locked_by` = $2,
    `lease_token` = $3,
    `locked_until` = timestampadd(microsecond, $4 * 1000, utc_timestamp(6)),
    `updated_at` = utc_timestamp(6),
    `status` = 'processing'
where `id` in ($1);

-- lock_held
-- Locks rows that are still held under a token, but for those that another transaction has locked.
--   $1 ids  $2 token
select cast(o.`id` as char) as id, null as version
from `posthaste_outbox` o
where o.`id` in ($1) and right(o.`lease_token`, 36) = $2 and o.`status` = 'processing'
for update skip locked;

-- find_held
-- Finds rows that are still held under a token, locked or not.
--   $1 ids  $2 token
select cast(o.`id` as char) as id, null as version
from `posthaste_outbox` o
where o.`id` in ($1) and right(o.`lease_token`, 36) = $2 and o.`status` = 'processing';

-- extend
-- Prolongs the leases of locked rows.
--   $1 ids  $2 lease in ms
update `posthaste_outbox`
set `locked_until` = timestampadd(microsecond, $2 * 1000, utc_timestamp(6)),
    `updated_at` = utc_timestamp(6),
    `status` = 'processing'
where `id` in ($1);

-- find_old_dead
-- Finds dead rows past their retention, those that died first before the others, and locks them, but for those that another
-- transaction has locked.
--   $1 age in ms  $2 limit  $3 namespace, or null for all
select cast(o.`id` as char) as id
from `posthaste_outbox` o
where o.`status` = 'dead'
    and o.`updated_at` < timestampadd(microsecond, -1000 * $1, utc_timestamp(6))
    and ($3 is null or o.`namespace` = $3)
order by o.`updated_at`
limit $2
for update skip locked;

-- topic_gauges
-- The topics of the oldest pending messages, those with the most first.
--   $1 namespace  $2 how many messages are looked at
select counted.topic as topic, count(*) as pending,
    cast(coalesce(timestampdiff(microsecond, min(counted.oldest), utc_timestamp(6)), 0) as signed) as oldest_us
from (
    select coalesce(o.`topic`, '') as topic, o.`created_at` as oldest
    from `posthaste_outbox` o
    where o.`status` in ('pending') and o.`namespace` = $1
    order by o.`seq`
    limit $2
) counted
group by counted.topic
order by count(*) desc, counted.topic;

-- find_exhausted
-- Finds rows that have used all their attempts without a verdict.
--   $1 namespace  $2 max attempts  $3 whether all topics are served  $4 topics  $5 tenant  $6 limit
select cast(o.`id` as char) as id
from `posthaste_outbox` o
where o.`status` in ('pending' , 'processing')
    and coalesce(o.`attempts`, 0) >= $2
    and (o.`status` <> 'processing' or o.`locked_until` < utc_timestamp(6))
    and o.`namespace` = $1
and ($3 or o.`topic` in ($4))
and ($5 is null or o.`tenant` = $5)
limit $6;

-- lock_exhausted
-- Locks such rows, unless another transaction has them or they are no longer such.
--   $1 ids  $2 max attempts
select cast(o.`id` as char) as id
from `posthaste_outbox` o
where o.`id` in ($1) and o.`status` in ('pending' , 'processing')
    and coalesce(o.`attempts`, 0) >= $2
    and (o.`status` <> 'processing' or o.`locked_until` < utc_timestamp(6))
for update skip locked;

-- mark_dead
-- Gives up locked rows that have used all their attempts.
--   $1 ids  $2 error, where there is none yet  $3 added to attempts of a row that was claimed
update `posthaste_outbox`
set `attempts` = `attempts` + case when `status` = 'processing' then $3 else 0 end,
    `locked_by` = null,
    `lease_token` = null,
    `locked_until` = null,
    `last_error` = coalesce(`last_error`, $2),
    `updated_at` = utc_timestamp(6),
    `status` = 'dead'
where `id` in ($1);

-- restore
-- Makes a row that was inserted in this transaction the dead one that it was.
--   $1 its id  $2 the id that it had  $3 attempts  $4 error  $5 time of the first insert, in microseconds since 1970
--   $6 dedupe key  $7 hash
update `posthaste_outbox`
set
    `attempts` = $3,
    `last_error` = $4,
    `created_at` = timestampadd(microsecond, $5, cast('1970-01-01' as datetime(6))),
    `dedupe_key` = $6,
    `content_hash` = $7,
    `status` = 'dead'
where `id` = $1;

-- hold_keys
-- Holds the dedupe keys of new rows, in one order for all producers, so that they cannot deadlock. A key that is taken
-- stays with its holder; another one that asks for it waits until the holder's transaction is over.
--   $1 rows  $2 who holds them now  $3 window in ms
insert into `posthaste_outbox_dedupe` (namespace, topic, dedupe_key, message_id, held_by, expires_at)
select j.namespace, j.topic, j.dedupe_key, j.id, $2, timestampadd(microsecond, $3 * 1000, utc_timestamp(6))
from json_table($1, '$[*]' columns (
    id char(36) path '$.id', namespace varchar(512) path '$.namespace', topic varchar(512) path '$.topic',
    dedupe_key varchar(512) path '$.dedupe_key'
)) j
where j.dedupe_key is not null
order by j.namespace, j.topic, j.dedupe_key
on duplicate key update held_by = `posthaste_outbox_dedupe`.held_by;

-- find_holders
-- Who holds dedupe keys. Locking, because a plain read may be one of the past; each by its place in the index, because to
-- lock what a scan passes would hold up everybody else.
--   $1 namespaces, topics and keys  $2 who asks
--
-- Returns for each key whether its window is over, the message that holds it with the key behind it in hexadecimal digits, and
-- whether it is held by who asks.
select d.expires_at <= utc_timestamp(6) as place,
    concat_ws(' ', d.message_id, hex(d.namespace), hex(d.topic), hex(d.dedupe_key)) as id, d.held_by = $2 as is_new
from `posthaste_outbox_dedupe` d
where (d.namespace, d.topic, d.dedupe_key) in ($1)
for update;

-- take_over_key
-- Takes a dedupe key whose window is over, and whose row is gone, from its holder.
--   $1 namespace  $2 topic  $3 key  $4 new message  $5 new holder  $6 window in ms
update `posthaste_outbox_dedupe`
set message_id = $4, held_by = $5, expires_at = timestampadd(microsecond, $6 * 1000, utc_timestamp(6))
where namespace = $1 and topic = $2 and dedupe_key = $3 and expires_at <= utc_timestamp(6)
    and not exists (select 1 from `posthaste_outbox` o where o.`id` = `posthaste_outbox_dedupe`.message_id);

-- enqueue
-- Writes rows in the caller's transaction.
--   $1 rows  $2 their payloads, one after another
insert into `posthaste_outbox` (
    `id`, `namespace`, `topic`, `ordering_key`, `tenant`, `dedupe_key`, `event_type`, `source`,
    `aggregate_type`, `aggregate_id`, `content_type`, `payload`, `headers`, `content_hash`, `status`,
    `attempts`, `next_attempt_at`, `created_at`, `updated_at`
)
select
    j.id, j.namespace, j.topic, j.ordering_key, j.tenant, j.dedupe_key, j.event_type, j.source, j.aggregate_type,
    j.aggregate_id, j.content_type, substring($2, j.start, j.bytes), j.headers, unhex(j.hash), 'pending', 0,
    greatest(utc_timestamp(6), coalesce(
        timestampadd(microsecond, j.not_before, cast('1970-01-01' as datetime(6))), utc_timestamp(6)
    )),
    utc_timestamp(6), utc_timestamp(6)
from json_table($1, '$[*]' columns (
    place for ordinality, id char(36) path '$.id', namespace varchar(512) path '$.namespace',
    topic varchar(512) path '$.topic', ordering_key varchar(512) path '$.ordering_key',
    tenant varchar(512) path '$.tenant', dedupe_key varchar(512) path '$.dedupe_key',
    event_type varchar(512) path '$.event_type', source varchar(512) path '$.source',
    aggregate_type varchar(512) path '$.aggregate_type', aggregate_id varchar(512) path '$.aggregate_id',
    content_type varchar(512) path '$.content_type', headers longtext path '$.headers', hash char(64) path '$.hash',
    not_before bigint path '$.not_before', start bigint path '$.start', bytes bigint path '$.bytes'
)) j
order by j.place;

-- find_free_keys
-- Finds dedupe keys whose window is over and whose row is gone. A key and its row are committed together.
--   $1 limit
select d.namespace, d.topic, d.dedupe_key, d.held_by
from `posthaste_outbox_dedupe` d
where d.expires_at <= utc_timestamp(6) and not exists (select 1 from `posthaste_outbox` o where o.`id` = d.message_id)
order by d.expires_at
limit $1;

-- purge_dedupe
-- Frees one of them, unless it was taken anew.
delete from `posthaste_outbox_dedupe` where namespace = $1 and topic = $2 and dedupe_key = $3 and held_by = $4;

-- record_inbox
-- Records a delivery in the handler's transaction; waits for a transaction that records the same one.
insert into `posthaste_inbox` (consumer, `key`, handled_at) values ($1, $2, utc_timestamp(6));

-- purge_inbox
-- Forgets what one consumer handled longer ago than the broker can deliver again.
delete from `posthaste_inbox`
where consumer = $1 and handled_at < timestampadd(microsecond, -1000 * $2, utc_timestamp(6))
order by handled_at
limit $3;

-- heartbeat
-- Says that a relay is there. Its first heartbeat is its start.
insert into `posthaste_relays` (
    worker, namespace, publisher, host, pid, version, started_at, seen_at, circuit, circuit_since, circuit_reason
) values (
    $1, $2, $3, $4, $5, $6, utc_timestamp(6), utc_timestamp(6), $7,
    timestampadd(microsecond, -1000 * $8, utc_timestamp(6)), $9
)
on duplicate key update
    namespace = values(namespace), publisher = values(publisher), host = values(host), pid = values(pid),
    version = values(version), seen_at = values(seen_at), circuit = values(circuit),
    circuit_since = values(circuit_since), circuit_reason = values(circuit_reason);

-- forget_relays
-- Forgets relays that died without leaving.
delete from `posthaste_relays` where worker <> $1 and seen_at < timestampadd(microsecond, -1000 * $2, utc_timestamp(6));

-- deregister
-- Takes a relay off the list.
delete from `posthaste_relays` where worker = $1;

-- relays
-- The relays of a namespace, oldest first.
select
    r.worker, r.namespace, r.publisher, r.host, r.pid, r.version, r.started_at, r.seen_at,
    cast(greatest(timestampdiff(microsecond, r.seen_at, utc_timestamp(6)), 0) as signed) as silent_us,
    r.circuit, r.circuit_since, r.circuit_reason,
    exists (
        select 1 from `posthaste_leaders` l
        where l.namespace = r.namespace and l.worker = r.worker and l.until > utc_timestamp(6)
    ) as leads
from `posthaste_relays` r
where r.namespace = $1
order by r.started_at, r.worker;

-- leader
-- Who leads, other than the one who asks; a look before the leap, so that relays that stand by do not write.
select worker, timestampdiff(microsecond, utc_timestamp(6), until) div 1000 as left_ms
from `posthaste_leaders`
where namespace = $1 and worker <> $2 and until > utc_timestamp(6);

-- elect_leader
-- Takes the lead, or keeps it, unless another relay's lease is not over. Who leads now stands in the row: assignments are
-- made from left to right, so the time is the last to change.
insert into `posthaste_leaders` (namespace, worker, since, until)
values ($1, $2, utc_timestamp(6), timestampadd(microsecond, $3 * 1000, utc_timestamp(6)))
on duplicate key update
    since = case when worker <> values(worker) and until <= utc_timestamp(6) then values(since) else since end,
    worker = case when until <= utc_timestamp(6) then values(worker) else worker end,
    until = case when worker = values(worker) then values(until) else until end;

-- step_down
-- Ends the leadership of a relay that leaves.
delete from `posthaste_leaders` where worker = $1;

