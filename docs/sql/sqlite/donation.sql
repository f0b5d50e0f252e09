-- enqueue
-- Writes rows in the caller's transaction. A dedupe key that is taken, or an id that exists, writes nothing; the ids
-- that come back were written.
--   ?1 rows as a JSON array  ?2 their payloads, one behind the other
--
-- Where the table is ordered by time, a row is as much later than the clock as it needs to stay behind the earlier ones of
-- its key, of this call and of those before, whatever their ids are.
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now),
input as (
    select key as place, value ->> 'id' as id, value ->> 'event_id' as event_id, value ->> 'namespace' as namespace,
        value ->> 'topic' as topic, value ->> 'ordering_key' as ordering_key, value ->> 'tenant' as tenant,
        value ->> 'dedupe_key' as dedupe_key, value ->> 'event_type' as event_type, value ->> 'source' as source,
        value ->> 'aggregate_type' as aggregate_type, value ->> 'aggregate_id' as aggregate_id,
        value ->> 'content_type' as content_type, value ->> 'headers' as headers, value ->> 'hash' as hash,
        value ->> 'not_before' as not_before, value ->> 'first' as first,
        value ->> 'later' as later, value ->> 'tick' as tick, value ->> 'start' as start, value ->> 'bytes' as bytes
    from json_each(?1)
)
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
select
    -- substr gives null for an empty blob
    cast(coalesce(substr(?2, i.start, i.bytes), x'') as text), 'PENDING'
    , i.event_id
    , i.event_type
    , i.hash
    , 0
    , 0
    , strftime('%Y-%m-%d %H:%M:%f', (max(clock.now, coalesce(i.not_before, 0))) / 1000.0, 'unixepoch', '+00:00')
    , strftime('%Y-%m-%d %H:%M:%f', (clock.now + i.later) / 1000.0, 'unixepoch', '+00:00')
    , strftime('%Y-%m-%d %H:%M:%f', (clock.now) / 1000.0, 'unixepoch', '+00:00')
from input i
cross join clock
where true
order by i.place
on conflict  do nothing
returning 0 as place, cast("id" as text) as id, true as is_new;

-- settle
-- Applies one change to rows that are still held under their token; the ids that come back were settled. What changes is
-- decided before; null leaves a column as it is.
--   ?1 JSON array of [id, token, version]  ?2 new state  ?3 added to attempts  ?4 wait in ms  ?5 error  ?6 whether delivered
--
-- Sets rather than a join, which SQLite might begin at the wrong end.
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now),
settled as materialized (
    select iif(cast(cast((value ->> 0) as integer) as text) = (value ->> 0), cast((value ->> 0) as integer), null) as id, value ->> 1 as token, value ->> 2 as version
    from json_each(?1)
)
update "donation_outbox" as o
set "status" = case ?2 when 'pending' then 'PENDING' when 'waiting' then 'FAILED'
        when 'delivered' then 'COMPLETED' when 'dead' then 'DEAD_LETTER' else o."status" end,
    "retry_count" = coalesce(o."retry_count", 0) + ?3,
    "next_retry_at" = coalesce(
        strftime('%Y-%m-%d %H:%M:%f', ((select now from clock) + ?4) / 1000.0, 'unixepoch', '+00:00'),
        o."next_retry_at"),
    "locked_at" = null,
    "last_error" = coalesce(?5, o."last_error"),
    "version" = coalesce(o."version", 0) + 1,
    "updated_at" = strftime('%Y-%m-%d %H:%M:%f', ((select now from clock)) / 1000.0, 'unixepoch', '+00:00'),
    "locked_by" = null
where o."id" in (select id from settled) and (o."id", substr(o."locked_by", -36)) in (select id, token from settled)
    and o."status" = 'PROCESSING'
    and (o."id" in (select id from settled where version is null)
        or (o."id", coalesce(o."version", 0)) in (select id, version from settled))
returning cast("id" as text) as id;

-- extend
-- Prolongs leases that are still held under the token. A version stays as it is: the claim goes on.
--   ?1 ids  ?2 token  ?3 lease in ms
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now)
update "donation_outbox"
set
    "locked_at" = strftime('%Y-%m-%d %H:%M:%f', ((select now from clock)) / 1000.0, 'unixepoch', '+00:00'),
    "updated_at" = strftime('%Y-%m-%d %H:%M:%f', ((select now from clock)) / 1000.0, 'unixepoch', '+00:00'),
    "locked_by" = "locked_by"
where "id" in (select iif(cast(cast(value as integer) as text) = value, cast(value as integer), null) from json_each(?1)) and substr("locked_by", -36) = ?2
    and "status" = 'PROCESSING'
returning cast("id" as text) as id;

-- sweep
-- Gives up rows that have used all their attempts without a verdict.
--   ?1 namespace  ?2 max attempts  ?3 topics  ?4 tenant  ?5 the error of rows that have none  ?6 added to attempts of a row
--   that was claimed
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now),
exhausted as (
    select "id" as id
    from "donation_outbox"
    where  "status" in ('PENDING', 'FAILED')
        and "retry_count" >= coalesce("max_retries" + 1, ?2)
)
update "donation_outbox"
set "retry_count" = "retry_count" + case when "status" = 'PROCESSING' then ?6 else 0 end,
    "locked_at" = null,
    "last_error" = coalesce("last_error", ?5),
    "version" = coalesce("version", 0) + 1,
    "updated_at" = strftime('%Y-%m-%d %H:%M:%f', ((select now from clock)) / 1000.0, 'unixepoch', '+00:00'),
    "locked_by" = null, "status" = 'DEAD_LETTER'
where "id" in (select id from exhausted)
returning "id" as order_0, cast("id" as text) as id;

-- purge_delivered
-- Removes delivered rows past their retention, oldest first. Their age counts from the best time that the table has.
--   ?1 retention in ms  ?2 limit  ?3 namespace, or null for all
delete from "donation_outbox"
where "id" in (
    select "id"
    from "donation_outbox"
    where "status" = 'COMPLETED'
        and cast(round(unixepoch("updated_at", '-00:00', 'subsec') * 1000) as integer)
            < cast(unixepoch('subsec') * 1000 as integer) - ?1
    order by "id"
    limit ?2
);

-- purgeable
-- Counts what a purge would remove: delivered rows and dead rows past their retention, and dedupe keys whose window is over
-- and whose row is gone by then.
--   ?1 age of delivered rows in ms  ?2 age of dead rows in ms  ?3 namespace, or null for all
select (
    select count(*)
    from "donation_outbox"
    where "status" = 'COMPLETED'
        and cast(round(unixepoch("updated_at", '-00:00', 'subsec') * 1000) as integer)
            < cast(unixepoch('subsec') * 1000 as integer) - ?1
) as delivered, (
    select count(*)
    from "donation_outbox"
    where "status" = 'DEAD_LETTER'
        and cast(round(unixepoch("updated_at", '-00:00', 'subsec') * 1000) as integer) < cast(unixepoch('subsec') * 1000 as integer) - ?2
) as dead, 0 as dedupe;

-- list
-- Rows as an operator sees them. Parameters are numbered as in find.sql, which takes ids.
--   ?1 namespace  ?2 labels of the status  ?3 topic  ?4 ordering key  ?5 tenant  ?7 after the row with this id  ?8 limit
select
    "id" as order_0, null as seq, cast("id" as text) as id, cast("request_id" as text) as event_id, null as namespace, null as topic, null as ordering_key, null as tenant, null as dedupe_key, cast("event_type" as text) as event_type, null as source, null as aggregate_type, null as aggregate_id, null as content_type, cast("payload" as blob) as payload, null as headers, cast("content_hash" as blob) as content_hash,
    cast("retry_count" as integer) as attempts, cast("max_retries" as integer) as max_attempts, cast("version" as integer) as version,
    cast("status" as text) as status, cast(round(unixepoch("next_retry_at", '-00:00', 'subsec') * 1000) as integer) as next_attempt_at,
    cast("locked_by" as text) as locked_by,
    null as locked_until, cast("last_error" as text) as last_error,
    cast(round(unixepoch("created_at", '-00:00', 'subsec') * 1000) as integer) as created_at,
    cast(round(unixepoch("updated_at", '-00:00', 'subsec') * 1000) as integer) as updated_at,
    null as delivered_at
from "donation_outbox" o
where "status" in (select value from json_each(?2))
    and (?7 is null or ("id") > (select "id" from "donation_outbox" where "id" = iif(cast(cast(?7 as integer) as text) = ?7, cast(?7 as integer), null)))
-- By the columns, not by what was made of them above under the same names.
order by o."id"
limit ?8;

-- find
-- Rows as an operator sees them, by their ids: what list.sql does, driven by the index on ids.
--   ?1 namespace  ?2 labels of the status  ?3 topic  ?4 ordering key  ?5 tenant  ?6 ids
--   ?7 after the row with this id  ?8 limit
select
    "id" as order_0, null as seq, cast("id" as text) as id, cast("request_id" as text) as event_id, null as namespace, null as topic, null as ordering_key, null as tenant, null as dedupe_key, cast("event_type" as text) as event_type, null as source, null as aggregate_type, null as aggregate_id, null as content_type, cast("payload" as blob) as payload, null as headers, cast("content_hash" as blob) as content_hash,
    cast("retry_count" as integer) as attempts, cast("max_retries" as integer) as max_attempts, cast("version" as integer) as version,
    cast("status" as text) as status, cast(round(unixepoch("next_retry_at", '-00:00', 'subsec') * 1000) as integer) as next_attempt_at,
    cast("locked_by" as text) as locked_by,
    null as locked_until, cast("last_error" as text) as last_error,
    cast(round(unixepoch("created_at", '-00:00', 'subsec') * 1000) as integer) as created_at,
    cast(round(unixepoch("updated_at", '-00:00', 'subsec') * 1000) as integer) as updated_at,
    null as delivered_at
from "donation_outbox" o
where "id" in (select iif(cast(cast(value as integer) as text) = value, cast(value as integer), null) from json_each(?6)) and "status" in (select value from json_each(?2))
    and (?7 is null or ("id") > (select "id" from "donation_outbox" where "id" = iif(cast(cast(?7 as integer) as text) = ?7, cast(?7 as integer), null)))
-- By the columns, not by what was made of them above under the same names.
order by o."id"
limit ?8;

-- replay
-- Begins dead rows again at their old place in the order. Guarded: a row that is no longer dead is left alone.
--   ?1 namespace  ?2 topic  ?3 ordering key  ?4 tenant  ?5 ids  ?6 limit
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now)
update "donation_outbox"
set
    -- Due at once, but waiting by kind: followers that wait already must not overtake it.
    "next_retry_at" = strftime('%Y-%m-%d %H:%M:%f', (max((select now from clock), coalesce(cast(round(unixepoch("created_at", '-00:00', 'subsec') * 1000) as integer), 0) + 1)) / 1000.0, 'unixepoch', '+00:00'),
    "updated_at" = strftime('%Y-%m-%d %H:%M:%f', (max((select now from clock), coalesce(cast(round(unixepoch("created_at", '-00:00', 'subsec') * 1000) as integer), 0) + 1)) / 1000.0, 'unixepoch', '+00:00'),
    "version" = coalesce("version", 0) + 1,
    "retry_count" = 0, "status" = 'PENDING'
where "status" = 'DEAD_LETTER' and "id" in (
    select "id"
    from "donation_outbox"
    where "status" = 'DEAD_LETTER'
        and (?5 is null or "id" in (select iif(cast(cast(value as integer) as text) = value, cast(value as integer), null) from json_each(?5)))
    order by "id"
    limit ?6
)
returning "id" as order_0, cast("id" as text) as id;

-- discard
-- Removes dead rows for good. Guarded: a row that is no longer dead is left alone.
--   ?1 namespace  ?2 topic  ?3 ordering key  ?4 tenant  ?5 ids  ?6 limit
delete from "donation_outbox"
where "status" = 'DEAD_LETTER' and "id" in (
    select "id"
    from "donation_outbox"
    where "status" = 'DEAD_LETTER'
        and (?5 is null or "id" in (select iif(cast(cast(value as integer) as text) = value, cast(value as integer), null) from json_each(?5)))
    order by "id"
    limit ?6
)
returning "id" as order_0, cast("id" as text) as id;

-- trial_rows
-- Some open rows of a scope, on which verdicts are tried before all is rolled back.
--   ?1 how many  ?2 namespace  ?3 topics  ?4 tenant
select cast(o."id" as text) as id, coalesce(o."id" = iif(cast(cast(cast(o."id" as text) as integer) as text) = cast(o."id" as text), cast(cast(o."id" as text) as integer), null), 0) as found_by_id
from "donation_outbox" o
where
    -- Those that have an index of their own.
    o."status" in ('PENDING', 'FAILED')
    and ?2 is not null
    and ?3 is null
    and ?4 is null
limit ?1;

-- trial_claim
-- Claims rows: to try verdicts on them, or to find out whose claim is refused. It is rolled back.
--   ?1 ids as a JSON array  ?2 worker  ?3 fence  ?4 lease in ms
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now)
update "donation_outbox" as o
set "status" = 'PROCESSING', "retry_count" = coalesce("retry_count", 0) + 1,
    "locked_at" = strftime('%Y-%m-%d %H:%M:%f', ((select now from clock)) / 1000.0, 'unixepoch', '+00:00'),
    "version" = coalesce(cast("version" as integer), 0) + 1,
    "updated_at" = strftime('%Y-%m-%d %H:%M:%f', ((select now from clock)) / 1000.0, 'unixepoch', '+00:00'),
    "locked_by" = ?3
where o."id" in (select iif(cast(cast(value as integer) as text) = value, cast(value as integer), null) from json_each(?1)) and ?2 is not null and ?4 is not null
returning cast("id" as text) as id;

-- purge_dead
-- Removes dead rows past their retention, those that died first before the others. Guarded: a row that is no longer dead is
-- left alone.
--   ?1 retention in ms  ?2 limit  ?3 namespace, or null for all
delete from "donation_outbox"
where "status" = 'DEAD_LETTER' and "id" in (
    select "id"
    from "donation_outbox"
    where "status" = 'DEAD_LETTER'
        and cast(round(unixepoch("updated_at", '-00:00', 'subsec') * 1000) as integer) < cast(unixepoch('subsec') * 1000 as integer) - ?1
    order by "updated_at"
    limit ?2
)
returning "id" as order_0, cast("id" as text) as id;

-- probe_in_order
-- Whether there is work, without a lock, so that an idle relay never stands in a writer's way; and what crashed workers
-- left behind: the most attempts among rows that may be tried again, counted back from the limit where a row has its own,
-- and whether some may not.
--   ?1 namespace  ?2 max attempts  ?3 topics  ?4 tenant
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now)
select
    exists (
        select 1
        from "donation_outbox" o
        where o."status" in ('PENDING', 'FAILED')
            and coalesce(o."retry_count", 0) < coalesce(o."max_retries" + 1, ?2)
            and coalesce(cast(round(unixepoch(o."next_retry_at", '-00:00', 'subsec') * 1000) as integer) <= (select now from clock), 1)
    ) as due,
    null as most_tried,
    0 as exhausted;

-- claim_in_order
-- Takes rows in the table's order, never past an earlier row of the same key. It looks at the first rows that are open: all
-- earlier ones of a key are among them. Rows of vanished workers and pending ones are taken by calls of their own.
--   ?1 namespace  ?2 max attempts  ?3 topics  ?4 tenant  ?5 limit  ?6 max bytes  ?7 worker  ?8 fence  ?9 lease in ms
--   ?10 whether keys are ordered  ?11 whether dead heads block by default  ?12 topics with the other policy
--   ?13 how many open rows are looked at  ?14 whether rows of vanished workers are wanted, and else pending ones
--   ?15 by how many ms the time of creation may be too early, as its column keeps it
--   ?16 rows that are left out, as a JSON array; they are never taken, and hold back their keys
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now),
seen as (
    select * from (
        select
            o."id" as id, null as topic, null as ordering_key, o."id" as order_0,
            coalesce(octet_length(o."payload"), 0) as bytes, 1 as pending, 0 as live, 0 as expired,
            coalesce(o."retry_count", 0) < coalesce(o."max_retries" + 1, ?2)
                and o."id" not in (select iif(cast(cast(value as integer) as text) = value, cast(value as integer), null) from json_each(?16))
                and coalesce(cast(round(unixepoch(o."next_retry_at", '-00:00', 'subsec') * 1000) as integer) <= (select now from clock), 1) as due,
            -- A retry goes alone: if it fails again, nothing after it was touched.
            coalesce(cast(round(unixepoch(o."next_retry_at", '-00:00', 'subsec') * 1000) as integer) > cast(round(unixepoch(o."created_at", '-00:00', 'subsec') * 1000) as integer) + ?15, 0)
                or coalesce(o."retry_count", 0) > 0 as waits
        from "donation_outbox" o
        where o."status" in ('PENDING', 'FAILED')
        order by o."id"
        limit ?13
    )
    union all
    select
        o."id", null, null, o."id", coalesce(octet_length(o."payload"), 0), 0,
        1,
        coalesce(0
            and coalesce(o."retry_count", 0) < coalesce(o."max_retries" + 1, ?2)
            and o."id" not in (select iif(cast(cast(value as integer) as text) = value, cast(value as integer), null) from json_each(?16))
, 0),
        0, 0
    from "donation_outbox" o
    where o."status" = 'PROCESSING'
    union all
    -- A dead head that blocks is a row that never passes.
    select o."id", null, null, o."id", 0, 0, 0, 0, 0, 0
    from "donation_outbox" o
    where ?10 and o."status" = 'DEAD_LETTER'
        and ?11
        and null is not null
),
judged as (
    select
        id, ordering_key, bytes, x.order_0, iif(?14, expired, due) as claimable,
        coalesce(min(iif(?14, expired, due and not waits)) over (
            partition by topic, ordering_key order by x.order_0 rows between unbounded preceding and 1 preceding
        ), 1) as unbroken,
        -- The key is in somebody's hands, also what lies before the row that is.
        max(live) over (partition by topic, ordering_key) as in_flight,
        -- Beyond the rows that are looked at there may be earlier ones of the key.
        coalesce(sum(pending) over (
            order by x.order_0 rows between unbounded preceding and 1 preceding
        ), 0) as pending_before
    from seen x
),
picked as (
    select id
    from (
        select id, row_number() over in_order as place, sum(bytes) over in_order as bytes_so_far
        from judged x
        where claimable and (not ?10 or ordering_key is null or (unbroken and not in_flight and pending_before < ?13))
        window in_order as (order by x.order_0 rows between unbounded preceding and current row)
    )
    where place = 1 or (place <= ?5 and bytes_so_far <= ?6)
)
update "donation_outbox"
set "status" = 'PROCESSING', "retry_count" = coalesce("retry_count", 0) + 1,
    "locked_at" = strftime('%Y-%m-%d %H:%M:%f', ((select now from clock)) / 1000.0, 'unixepoch', '+00:00'),
    "version" = coalesce(cast("version" as integer), 0) + 1,
    "updated_at" = strftime('%Y-%m-%d %H:%M:%f', ((select now from clock)) / 1000.0, 'unixepoch', '+00:00'),
    "locked_by" = ?8
where "id" in (select id from picked)
returning "id" as order_0, null as seq, cast("id" as text) as id, cast("request_id" as text) as event_id, null as namespace, null as topic, null as ordering_key, null as tenant, null as dedupe_key, cast("event_type" as text) as event_type, null as source, null as aggregate_type, null as aggregate_id, null as content_type, cast("payload" as blob) as payload, null as headers, cast("content_hash" as blob) as content_hash,
    cast("retry_count" as integer) as attempts, cast("max_retries" as integer) as max_attempts, cast("version" as integer) as version,
    cast(round(unixepoch("created_at", '-00:00', 'subsec') * 1000) as integer) as created_at, coalesce("id" = iif(cast(cast(cast("id" as text) as integer) as text) = cast("id" as text), cast(cast("id" as text) as integer), null), 0) as found_by_id;

-- has_more_pending
-- Whether there are more rows than so many that may be claimed some day.
--   ?1 namespace  ?2 how many
select exists (select 1 from "donation_outbox" o where o."status" in ('PENDING', 'FAILED')  limit 1 offset ?2);

-- stats_in_order
-- Counts what is not delivered, up to a number of each kind. The oldest pending row is the first in order, or one of those
-- that were counted.
--   ?1 namespace  ?2 how many rows of a kind are counted
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now),
open as (
    select count(*) as n, count(*) filter (where not_due) as not_due, min(created_at) as oldest
    from (
        select cast(round(unixepoch("next_retry_at", '-00:00', 'subsec') * 1000) as integer) > (select now from clock) as not_due,
            cast(round(unixepoch("created_at", '-00:00', 'subsec') * 1000) as integer) as created_at
        from "donation_outbox"
        where "status" in ('PENDING', 'FAILED')
        limit ?2
    )
),
head as (
    select min(created_at) as oldest
    from (
        select cast(round(unixepoch("created_at", '-00:00', 'subsec') * 1000) as integer) as created_at
        from "donation_outbox"
        where "status" in ('PENDING', 'FAILED')
        order by "id"
        limit 1
    )
),
leased as (
    select count(*) as n, min(cast(round(unixepoch("created_at", '-00:00', 'subsec') * 1000) as integer)) as oldest from "donation_outbox" where "status" = 'PROCESSING'
),
given_up as (
    select count(*) as n from (
        select 1 from "donation_outbox" where "status" = 'DEAD_LETTER'  limit ?2
    )
),
oldest as (
    select min(oldest) as created_at
    from (select oldest from open union all select oldest from head union all select oldest from leased)
)
select
    open.n as pending, open.not_due as waiting, leased.n as processing, given_up.n as dead,
    -- Anything may stand there.
    cast(max(clock.now - coalesce(oldest.created_at, clock.now), 0) as integer) as oldest_ms
from clock, open, leased, given_up, oldest;

-- find_duplicate
-- Which row was there before each of those that were not written.
--   ?1 rows as a JSON array
select i.key as place, cast(o."id" as text) as id, false as is_new
from json_each(?1) i
cross join "donation_outbox" o
where false
    or o."request_id" = (i.value ->> 'event_id');

-- recover
-- Takes rows back from workers that crashed, where the table says since when a row is claimed and not until when.
--   ?1 namespace  ?2 max attempts  ?3 topics  ?4 tenant  ?5 the error of rows that have none  ?6 stalled after so many ms
--   ?7 only these rows, as a JSON array, if any are given  ?8 added to attempts of a row that dies
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now),
stalled as (
    select "id" as id
    from "donation_outbox"
    where  "status" = 'PROCESSING'
        and coalesce(cast(round(unixepoch("locked_at", '-00:00', 'subsec') * 1000) as integer), 0) < (select now from clock) - ?6
        and (?7 is null or "id" in (select iif(cast(cast(value as integer) as text) = value, cast(value as integer), null) from json_each(?7)))
)
update "donation_outbox"
set "retry_count" = "retry_count" + case when "retry_count" >= coalesce("max_retries" + 1, ?2) then ?8 else 0 end,
    "last_error" = case
        when "retry_count" >= coalesce("max_retries" + 1, ?2) then coalesce("last_error", ?5) else "last_error" end,
    "version" = coalesce("version", 0) + 1,
    "updated_at" = strftime('%Y-%m-%d %H:%M:%f', ((select now from clock)) / 1000.0, 'unixepoch', '+00:00'),
    "locked_at" = null, "locked_by" = null,
    "status" = case when "retry_count" >= coalesce("max_retries" + 1, ?2) then 'DEAD_LETTER' else 'PENDING' end
where "id" in (select id from stalled)
returning "id" as order_0, cast("id" as text) as id, cast("status" as text) as status;

-- insert_dead_letter
-- Copies rows that died to the dead-letter table, in the transaction in which they did.
--   ?1 ids
insert into "donation_dlq" ("created_at", "request_id", "event_type", "original_id", "reason", "payload")
select strftime('%Y-%m-%d %H:%M:%f', (cast(unixepoch('subsec') * 1000 as integer)) / 1000.0, 'unixepoch', '+00:00'), o."request_id", o."event_type", o."id", o."last_error", o."payload"
from "donation_outbox" o
where o."id" in (select iif(cast(cast(value as integer) as text) = value, cast(value as integer), null) from json_each(?1))
-- One that was replayed and died again has its letter already.
on conflict do nothing;

-- restore
-- Makes a row that was inserted in this transaction the dead one that it was.
--   ?1 its id  ?2 the id that it had  ?3 attempts  ?4 error  ?5 time of the first insert, in ms since 1970  ?6 dedupe key
--   ?7 hash in hexadecimal digits
update "donation_outbox"
set "status" = 'DEAD_LETTER'
    , "id" = iif(cast(cast(?2 as integer) as text) = ?2, cast(?2 as integer), null)
    , "retry_count" = ?3
    , "last_error" = ?4
    , "created_at" = strftime('%Y-%m-%d %H:%M:%f', (?5) / 1000.0, 'unixepoch', '+00:00')
    , "content_hash" = ?7
where "id" = iif(cast(cast(?1 as integer) as text) = ?1, cast(?1 as integer), null);

-- restore_dead_letter
-- Copies a dead row to the dead-letter table, unless it is there.
--   ?1 id
insert into "donation_dlq" ("created_at", "request_id", "event_type", "original_id", "reason", "payload")
select strftime('%Y-%m-%d %H:%M:%f', (cast(unixepoch('subsec') * 1000 as integer)) / 1000.0, 'unixepoch', '+00:00'), o."request_id", o."event_type", o."id", o."last_error", o."payload"
from "donation_outbox" o
where o."id" = iif(cast(cast(?1 as integer) as text) = ?1, cast(?1 as integer), null) and o."status" = 'DEAD_LETTER'
    and not exists (
        select 1
        from "donation_dlq" l
        where true
            and l."original_id" = o."id"
            and l."request_id" = o."request_id"
    )
on conflict do nothing;

