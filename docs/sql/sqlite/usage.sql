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
select
    -- substr gives null for an empty blob
    cast(coalesce(substr(?2, i.start, i.bytes), x'') as text), 'pending'
    , i.id
    , i.namespace
    , i.topic
    , i.tenant
    , i.dedupe_key
    , 0
    , strftime('%Y-%m-%d %H:%M:%f', (max(clock.now, coalesce(i.not_before, 0))) / 1000.0, 'unixepoch')
    , strftime('%Y-%m-%d %H:%M:%f', (clock.now + i.later) / 1000.0, 'unixepoch')
    , strftime('%Y-%m-%d %H:%M:%f', (clock.now) / 1000.0, 'unixepoch')
from input i
cross join clock
where i.dedupe_key is null or not exists (
    -- Also where no unique index guards the key: there is one writer at a time.
    select 1
    from "modkit_outbox_events" o
    where o."dedupe_key" = i.dedupe_key
        and o."namespace" = i.namespace
        and o."topic" = i.topic
)
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
    select (value ->> 0) as id, value ->> 1 as token, value ->> 2 as version
    from json_each(?1)
)
update "modkit_outbox_events" as o
set "status" = case ?2 when 'pending' then 'pending' when 'waiting' then 'pending'
        when 'delivered' then 'delivered' when 'dead' then 'dead' else o."status" end,
    "attempts" = coalesce(o."attempts", 0) + ?3,
    "next_attempt_at" = coalesce(
        strftime('%Y-%m-%d %H:%M:%f', ((select now from clock) + ?4) / 1000.0, 'unixepoch'),
        o."next_attempt_at"),
    "locked_until" = null,
    "last_error" = coalesce(?5, o."last_error"),
    "updated_at" = strftime('%Y-%m-%d %H:%M:%f', ((select now from clock)) / 1000.0, 'unixepoch'),
    "locked_by" = null
where o."id" in (select id from settled) and (o."id", o."locked_by") in (select id, token from settled)
    and o."status" = 'processing'
returning cast("id" as text) as id;

-- extend
-- Prolongs leases that are still held under the token. A version stays as it is: the claim goes on.
--   ?1 ids  ?2 token  ?3 lease in ms
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now)
update "modkit_outbox_events"
set
    "locked_until" = strftime('%Y-%m-%d %H:%M:%f', ((select now from clock) + ?3) / 1000.0, 'unixepoch'),
    "updated_at" = strftime('%Y-%m-%d %H:%M:%f', ((select now from clock)) / 1000.0, 'unixepoch'),
    "locked_by" = "locked_by"
where "id" in (select value from json_each(?1)) and "locked_by" = ?2
    and "status" = 'processing'
returning cast("id" as text) as id;

-- sweep
-- Gives up rows that have used all their attempts without a verdict.
--   ?1 namespace  ?2 max attempts  ?3 topics  ?4 tenant  ?5 the error of rows that have none  ?6 added to attempts of a row
--   that was claimed
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now),
exhausted as (
    select "id" as id
    from "modkit_outbox_events"
    where "namespace" = ?1 and "status" = 'processing' and coalesce(cast(round(unixepoch("locked_until", 'subsec') * 1000) as integer), 0) < (select now from clock)
        and "attempts" >= ?2
        and (?3 is null or "topic" in (select value from json_each(?3)))
and (?4 is null or "tenant_id" = ?4)
    union all
    select "id" as id
    from "modkit_outbox_events"
    where "namespace" = ?1 and "status" in ('pending') and "attempts" > 0
        and "attempts" >= ?2
        and (?3 is null or "topic" in (select value from json_each(?3)))
and (?4 is null or "tenant_id" = ?4)
)
update "modkit_outbox_events"
set "attempts" = "attempts" + case when "status" = 'processing' then ?6 else 0 end,
    "locked_until" = null,
    "last_error" = coalesce("last_error", ?5),
    "updated_at" = strftime('%Y-%m-%d %H:%M:%f', ((select now from clock)) / 1000.0, 'unixepoch'),
    "locked_by" = null, "status" = 'dead'
where "id" in (select id from exhausted)
returning "created_at" as order_0, "id" as order_1, cast("id" as text) as id;

-- purge_delivered
-- Removes delivered rows past their retention, oldest first. Their age counts from the best time that the table has.
--   ?1 retention in ms  ?2 limit  ?3 namespace, or null for all
delete from "modkit_outbox_events"
where "id" in (
    select "id"
    from "modkit_outbox_events"
    where "status" = 'delivered'
        and cast(round(unixepoch("updated_at", 'subsec') * 1000) as integer)
            < cast(unixepoch('subsec') * 1000 as integer) - ?1
        and (?3 is null or "namespace" = ?3)
    order by "created_at", "id"
    limit ?2
);

-- purgeable
-- Counts what a purge would remove: delivered rows and dead rows past their retention, and dedupe keys whose window is over
-- and whose row is gone by then.
--   ?1 age of delivered rows in ms  ?2 age of dead rows in ms  ?3 namespace, or null for all
select (
    select count(*)
    from "modkit_outbox_events"
    where "status" = 'delivered'
        and cast(round(unixepoch("updated_at", 'subsec') * 1000) as integer)
            < cast(unixepoch('subsec') * 1000 as integer) - ?1
        and (?3 is null or "namespace" = ?3)
) as delivered, (
    select count(*)
    from "modkit_outbox_events"
    where "status" = 'dead'
        and cast(round(unixepoch("updated_at", 'subsec') * 1000) as integer) < cast(unixepoch('subsec') * 1000 as integer) - ?2
        and (?3 is null or "namespace" = ?3)
) as dead, 0 as dedupe;

-- list
-- Rows as an operator sees them. Parameters are numbered as in find.sql, which takes ids.
--   ?1 namespace  ?2 labels of the status  ?3 topic  ?4 ordering key  ?5 tenant  ?7 after the row with this id  ?8 limit
select
    "created_at" as order_0, "id" as order_1, null as seq, cast("id" as text) as id, null as event_id, cast("namespace" as text) as namespace, cast("topic" as text) as topic, null as ordering_key, cast("tenant_id" as text) as tenant, cast("dedupe_key" as text) as dedupe_key, null as event_type, null as source, null as aggregate_type, null as aggregate_id, null as content_type, cast(iif(json_valid("payload", 8), json("payload"), "payload") as blob) as payload, null as headers, null as content_hash,
    cast("attempts" as integer) as attempts, null as max_attempts, null as version,
    cast("status" as text) as status, cast(round(unixepoch("next_attempt_at", 'subsec') * 1000) as integer) as next_attempt_at,
    cast("locked_by" as text) as locked_by,
    cast(round(unixepoch("locked_until", 'subsec') * 1000) as integer) as locked_until, cast("last_error" as text) as last_error,
    cast(round(unixepoch("created_at", 'subsec') * 1000) as integer) as created_at,
    cast(round(unixepoch("updated_at", 'subsec') * 1000) as integer) as updated_at,
    null as delivered_at
from "modkit_outbox_events" o
where "status" in (select value from json_each(?2))
    and (?1 is null or "namespace" = ?1)
    and (?3 is null or "topic" = ?3)
    and (?5 is null or "tenant_id" = ?5)
    and (?7 is null or ("created_at", "id") > (select "created_at", "id" from "modkit_outbox_events" where "id" = ?7))
-- By the columns, not by what was made of them above under the same names.
order by o."created_at", o."id"
limit ?8;

-- find
-- Rows as an operator sees them, by their ids: what list.sql does, driven by the index on ids.
--   ?1 namespace  ?2 labels of the status  ?3 topic  ?4 ordering key  ?5 tenant  ?6 ids
--   ?7 after the row with this id  ?8 limit
select
    "created_at" as order_0, "id" as order_1, null as seq, cast("id" as text) as id, null as event_id, cast("namespace" as text) as namespace, cast("topic" as text) as topic, null as ordering_key, cast("tenant_id" as text) as tenant, cast("dedupe_key" as text) as dedupe_key, null as event_type, null as source, null as aggregate_type, null as aggregate_id, null as content_type, cast(iif(json_valid("payload", 8), json("payload"), "payload") as blob) as payload, null as headers, null as content_hash,
    cast("attempts" as integer) as attempts, null as max_attempts, null as version,
    cast("status" as text) as status, cast(round(unixepoch("next_attempt_at", 'subsec') * 1000) as integer) as next_attempt_at,
    cast("locked_by" as text) as locked_by,
    cast(round(unixepoch("locked_until", 'subsec') * 1000) as integer) as locked_until, cast("last_error" as text) as last_error,
    cast(round(unixepoch("created_at", 'subsec') * 1000) as integer) as created_at,
    cast(round(unixepoch("updated_at", 'subsec') * 1000) as integer) as updated_at,
    null as delivered_at
from "modkit_outbox_events" o
where "id" in (select value from json_each(?6)) and "status" in (select value from json_each(?2))
    and (?1 is null or "namespace" = ?1)
    and (?3 is null or "topic" = ?3)
    and (?5 is null or "tenant_id" = ?5)
    and (?7 is null or ("created_at", "id") > (select "created_at", "id" from "modkit_outbox_events" where "id" = ?7))
-- By the columns, not by what was made of them above under the same names.
order by o."created_at", o."id"
limit ?8;

-- replay
-- Begins dead rows again at their old place in the order. Guarded: a row that is no longer dead is left alone.
--   ?1 namespace  ?2 topic  ?3 ordering key  ?4 tenant  ?5 ids  ?6 limit
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now)
update "modkit_outbox_events"
set
    -- Due at once, but waiting by kind: followers that wait already must not overtake it.
    "next_attempt_at" = strftime('%Y-%m-%d %H:%M:%f', (max((select now from clock), coalesce(cast(round(unixepoch("created_at", 'subsec') * 1000) as integer), 0) + 1)) / 1000.0, 'unixepoch'),
    "updated_at" = strftime('%Y-%m-%d %H:%M:%f', (max((select now from clock), coalesce(cast(round(unixepoch("created_at", 'subsec') * 1000) as integer), 0) + 1)) / 1000.0, 'unixepoch'),
    "attempts" = 0, "status" = 'pending'
where "status" = 'dead' and "id" in (
    select "id"
    from "modkit_outbox_events"
    where "status" = 'dead'
        and (?1 is null or "namespace" = ?1)
        and (?2 is null or "topic" = ?2)
        and (?4 is null or "tenant_id" = ?4)
        and (?5 is null or "id" in (select value from json_each(?5)))
    order by "created_at", "id"
    limit ?6
)
returning "created_at" as order_0, "id" as order_1, cast("id" as text) as id;

-- discard
-- Removes dead rows for good. Guarded: a row that is no longer dead is left alone.
--   ?1 namespace  ?2 topic  ?3 ordering key  ?4 tenant  ?5 ids  ?6 limit
delete from "modkit_outbox_events"
where "status" = 'dead' and "id" in (
    select "id"
    from "modkit_outbox_events"
    where "status" = 'dead'
        and (?1 is null or "namespace" = ?1)
        and (?2 is null or "topic" = ?2)
        and (?4 is null or "tenant_id" = ?4)
        and (?5 is null or "id" in (select value from json_each(?5)))
    order by "created_at", "id"
    limit ?6
)
returning "created_at" as order_0, "id" as order_1, cast("id" as text) as id;

-- trial_rows
-- Some open rows of a scope, on which verdicts are tried before all is rolled back.
--   ?1 how many  ?2 namespace  ?3 topics  ?4 tenant
select cast(o."id" as text) as id, coalesce(o."id" = cast(o."id" as text), 0) as found_by_id
from "modkit_outbox_events" o
where
    -- Those that have an index of their own.
    o."status" in ('pending')
    and o."namespace" = ?2
    and (?3 is null or o."topic" in (select value from json_each(?3)))
    and (?4 is null or o."tenant_id" = ?4)
limit ?1;

-- trial_claim
-- Claims rows: to try verdicts on them, or to find out whose claim is refused. It is rolled back.
--   ?1 ids as a JSON array  ?2 worker  ?3 fence  ?4 lease in ms
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now)
update "modkit_outbox_events" as o
set "status" = 'processing', "attempts" = coalesce("attempts", 0) + 1,
    "locked_until" = strftime('%Y-%m-%d %H:%M:%f', ((select now from clock) + ?4) / 1000.0, 'unixepoch'),
    "updated_at" = strftime('%Y-%m-%d %H:%M:%f', ((select now from clock)) / 1000.0, 'unixepoch'),
    "locked_by" = ?3
where o."id" in (select value from json_each(?1)) and ?2 is not null and ?4 is not null
returning cast("id" as text) as id;

-- purge_dead
-- Removes dead rows past their retention, those that died first before the others. Guarded: a row that is no longer dead is
-- left alone.
--   ?1 retention in ms  ?2 limit  ?3 namespace, or null for all
delete from "modkit_outbox_events"
where "status" = 'dead' and "id" in (
    select "id"
    from "modkit_outbox_events"
    where "status" = 'dead'
        and cast(round(unixepoch("updated_at", 'subsec') * 1000) as integer) < cast(unixepoch('subsec') * 1000 as integer) - ?1
        and (?3 is null or "namespace" = ?3)
    order by "updated_at"
    limit ?2
)
returning "created_at" as order_0, "id" as order_1, cast("id" as text) as id;

-- topic_gauges
-- The topics of the oldest pending messages, those with the most first.
--   ?1 namespace  ?2 how many messages are looked at
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now),
pending as (
    select "topic" as topic, cast(round(unixepoch("created_at", 'subsec') * 1000) as integer) as created_at
    from "modkit_outbox_events"
    where "status" in ('pending') and "namespace" = ?1
    order by "created_at", "id"
    limit ?2
)
select coalesce(cast(topic as text), '') as topic, count(*) as pending,
    -- Anything may stand there.
    cast(max(clock.now - coalesce(min(case when typeof(created_at) = 'integer' then created_at end), clock.now), 0) as integer)
        as oldest_ms
from pending, clock
group by 1
order by count(*) desc, 1;

-- probe_in_order
-- Whether there is work, without a lock, so that an idle relay never stands in a writer's way; and what crashed workers
-- left behind: the most attempts among rows that may be tried again, counted back from the limit where a row has its own,
-- and whether some may not.
--   ?1 namespace  ?2 max attempts  ?3 topics  ?4 tenant
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now)
select
    exists (
        select 1
        from "modkit_outbox_events" o
        where o."status" in ('pending') and o."namespace" = ?1
            and coalesce(o."attempts", 0) < ?2
            and coalesce(cast(round(unixepoch(o."next_attempt_at", 'subsec') * 1000) as integer) <= (select now from clock), 1)
            and (?3 is null or o."topic" in (select value from json_each(?3)))
and (?4 is null or o."tenant_id" = ?4)
    ) as due,
    (
        select max(?2 - (?2 - coalesce(cast(o."attempts" as integer), 0)))
        from "modkit_outbox_events" o
        where o."status" = 'processing' and o."namespace" = ?1
            and coalesce(cast(round(unixepoch(o."locked_until", 'subsec') * 1000) as integer), 0) < (select now from clock)
            and coalesce(o."attempts", 0) < ?2
            and (?3 is null or o."topic" in (select value from json_each(?3)))
and (?4 is null or o."tenant_id" = ?4)
    ) as most_tried,
    exists (
        select 1
        from "modkit_outbox_events" o
        where o."status" = 'processing' and o."namespace" = ?1
            and coalesce(cast(round(unixepoch(o."locked_until", 'subsec') * 1000) as integer), 0) < (select now from clock)
            and o."attempts" >= ?2
            and (?3 is null or o."topic" in (select value from json_each(?3)))
and (?4 is null or o."tenant_id" = ?4)
    ) as exhausted;

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
            o."id" as id, cast(o."topic" as text) as topic, null as ordering_key, o."created_at" as order_0, o."id" as order_1,
            coalesce(octet_length(o."payload"), 0) as bytes, 1 as pending, 0 as live, 0 as expired,
            coalesce(o."attempts", 0) < ?2
                and o."id" not in (select value from json_each(?16))
                and coalesce(cast(round(unixepoch(o."next_attempt_at", 'subsec') * 1000) as integer) <= (select now from clock), 1) as due,
            -- A retry goes alone: if it fails again, nothing after it was touched.
            coalesce(cast(round(unixepoch(o."next_attempt_at", 'subsec') * 1000) as integer) > cast(round(unixepoch(o."created_at", 'subsec') * 1000) as integer) + ?15, 0)
                or coalesce(o."attempts", 0) > 0 as waits
        from "modkit_outbox_events" o
        where o."status" in ('pending') and o."namespace" = ?1
            and (?3 is null or o."topic" in (select value from json_each(?3)))
and (?4 is null or o."tenant_id" = ?4)
        order by o."created_at", o."id"
        limit ?13
    )
    union all
    select
        o."id", cast(o."topic" as text), null, o."created_at", o."id", coalesce(octet_length(o."payload"), 0), 0,
        coalesce(cast(round(unixepoch(o."locked_until", 'subsec') * 1000) as integer), 0) >= (select now from clock),
        coalesce(coalesce(cast(round(unixepoch(o."locked_until", 'subsec') * 1000) as integer), 0) < (select now from clock)
            and coalesce(o."attempts", 0) < ?2
            and o."id" not in (select value from json_each(?16))
            and (?3 is null or o."topic" in (select value from json_each(?3)))
and (?4 is null or o."tenant_id" = ?4), 0),
        0, 0
    from "modkit_outbox_events" o
    where o."status" = 'processing' and o."namespace" = ?1
    union all
    -- A dead head that blocks is a row that never passes.
    select o."id", cast(o."topic" as text), null, o."created_at", o."id", 0, 0, 0, 0, 0, 0
    from "modkit_outbox_events" o
    where ?10 and o."status" = 'dead' and o."namespace" = ?1
        and (o."topic" in (select value from json_each(?12))) <> ?11
        and null is not null
),
judged as (
    select
        id, ordering_key, bytes, x.order_0, x.order_1, iif(?14, expired, due) as claimable,
        coalesce(min(iif(?14, expired, due and not waits)) over (
            partition by topic, ordering_key order by x.order_0, x.order_1 rows between unbounded preceding and 1 preceding
        ), 1) as unbroken,
        -- The key is in somebody's hands, also what lies before the row that is.
        max(live) over (partition by topic, ordering_key) as in_flight,
        -- Beyond the rows that are looked at there may be earlier ones of the key.
        coalesce(sum(pending) over (
            order by x.order_0, x.order_1 rows between unbounded preceding and 1 preceding
        ), 0) as pending_before
    from seen x
),
picked as (
    select id
    from (
        select id, row_number() over in_order as place, sum(bytes) over in_order as bytes_so_far
        from judged x
        where claimable and (not ?10 or ordering_key is null or (unbroken and not in_flight and pending_before < ?13))
        window in_order as (order by x.order_0, x.order_1 rows between unbounded preceding and current row)
    )
    where place = 1 or (place <= ?5 and bytes_so_far <= ?6)
)
update "modkit_outbox_events"
set "status" = 'processing', "attempts" = coalesce("attempts", 0) + 1,
    "locked_until" = strftime('%Y-%m-%d %H:%M:%f', ((select now from clock) + ?9) / 1000.0, 'unixepoch'),
    "updated_at" = strftime('%Y-%m-%d %H:%M:%f', ((select now from clock)) / 1000.0, 'unixepoch'),
    "locked_by" = ?8
where "id" in (select id from picked)
returning "created_at" as order_0, "id" as order_1, null as seq, cast("id" as text) as id, null as event_id, cast("namespace" as text) as namespace, cast("topic" as text) as topic, null as ordering_key, cast("tenant_id" as text) as tenant, cast("dedupe_key" as text) as dedupe_key, null as event_type, null as source, null as aggregate_type, null as aggregate_id, null as content_type, cast(iif(json_valid("payload", 8), json("payload"), "payload") as blob) as payload, null as headers, null as content_hash,
    cast("attempts" as integer) as attempts, null as max_attempts, null as version,
    cast(round(unixepoch("created_at", 'subsec') * 1000) as integer) as created_at, coalesce("id" = cast("id" as text), 0) as found_by_id;

-- has_more_pending
-- Whether there are more rows than so many that may be claimed some day.
--   ?1 namespace  ?2 how many
select exists (select 1 from "modkit_outbox_events" o where o."status" in ('pending') and o."namespace" = ?1 limit 1 offset ?2);

-- stats_in_order
-- Counts what is not delivered, up to a number of each kind. The oldest pending row is the first in order, or one of those
-- that were counted.
--   ?1 namespace  ?2 how many rows of a kind are counted
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now),
open as (
    select count(*) as n, count(*) filter (where not_due) as not_due, min(created_at) as oldest
    from (
        select cast(round(unixepoch("next_attempt_at", 'subsec') * 1000) as integer) > (select now from clock) as not_due,
            cast(round(unixepoch("created_at", 'subsec') * 1000) as integer) as created_at
        from "modkit_outbox_events"
        where "status" in ('pending') and "namespace" = ?1
        limit ?2
    )
),
head as (
    select min(created_at) as oldest
    from (
        select cast(round(unixepoch("created_at", 'subsec') * 1000) as integer) as created_at
        from "modkit_outbox_events"
        where "status" in ('pending') and "namespace" = ?1
        order by "created_at", "id"
        limit 1
    )
),
leased as (
    select count(*) as n, min(cast(round(unixepoch("created_at", 'subsec') * 1000) as integer)) as oldest from "modkit_outbox_events" where "status" = 'processing' and "namespace" = ?1
),
given_up as (
    select count(*) as n from (
        select 1 from "modkit_outbox_events" where "status" = 'dead' and "namespace" = ?1 limit ?2
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
cross join "modkit_outbox_events" o
where o."id" = (i.value ->> 'id')
    or (o."dedupe_key" = (i.value ->> 'dedupe_key')
        and o."namespace" = (i.value ->> 'namespace')
        and o."topic" = i.value ->> 'topic');

-- restore
-- Makes a row that was inserted in this transaction the dead one that it was.
--   ?1 its id  ?2 the id that it had  ?3 attempts  ?4 error  ?5 time of the first insert, in ms since 1970  ?6 dedupe key
--   ?7 hash in hexadecimal digits
update "modkit_outbox_events"
set "status" = 'dead'
    , "attempts" = ?3
    , "last_error" = ?4
    , "created_at" = strftime('%Y-%m-%d %H:%M:%f', (?5) / 1000.0, 'unixepoch')
    , "dedupe_key" = ?6
where "id" = ?1;

