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
insert into "posthaste_outbox" (
    "payload", "status"
    , "id"
    , "namespace"
    , "topic"
    , "ordering_key"
    , "tenant"
    , "dedupe_key"
    , "event_type"
    , "source"
    , "aggregate_type"
    , "aggregate_id"
    , "content_type"
    , "headers"
    , "content_hash"
    , "attempts"
    , "next_attempt_at"
    , "created_at"
    , "updated_at"
)
select
    -- substr gives null for an empty blob
    cast(coalesce(substr(?2, i.start, i.bytes), x'') as blob), 'pending'
    , i.id
    , i.namespace
    , i.topic
    , i.ordering_key
    , i.tenant
    , i.dedupe_key
    , i.event_type
    , i.source
    , i.aggregate_type
    , i.aggregate_id
    , i.content_type
    , i.headers
    , unhex(i.hash)
    , 0
    , max(clock.now, coalesce(i.not_before, 0))
    , clock.now + i.later
    , clock.now
from input i
cross join clock
where i.dedupe_key is null or not exists (
    select 1
    from "posthaste_outbox_dedupe" d
    where d.namespace = i.namespace and d.topic = i.topic and d.dedupe_key = i.dedupe_key
        and (d.expires_at > clock.now or exists (select 1 from "posthaste_outbox" o where o."id" = d.message_id))
)
order by i.place
on conflict ("id") do nothing
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
update "posthaste_outbox" as o indexed by "posthaste_outbox_id"
set "status" = case ?2 when 'pending' then 'pending' when 'waiting' then 'pending'
        when 'delivered' then 'delivered' when 'dead' then 'dead' else o."status" end,
    "attempts" = coalesce(o."attempts", 0) + ?3,
    "next_attempt_at" = coalesce(
        -- What waits lies strictly after created_at: that is what marks a row as waiting.
            max((select now from clock) + ?4, o."created_at" + 1),
        o."next_attempt_at"),
    "locked_by" = null,
    "locked_until" = null,
    "last_error" = coalesce(?5, o."last_error"),
    "delivered_at" = case when ?6 then (select now from clock) end,
    "updated_at" = (select now from clock),
    "lease_token" = null
where o."id" in (select id from settled) and (o."id", o."lease_token") in (select id, token from settled)
    and o."status" = 'processing'
returning cast("id" as text) as id;

-- extend
-- Prolongs leases that are still held under the token. A version stays as it is: the claim goes on.
--   ?1 ids  ?2 token  ?3 lease in ms
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now)
update "posthaste_outbox" indexed by "posthaste_outbox_id"
set
    "locked_until" = (select now from clock) + ?3,
    "updated_at" = (select now from clock),
    "lease_token" = "lease_token"
where "id" in (select value from json_each(?1)) and "lease_token" = ?2
    and "status" = 'processing'
returning cast("id" as text) as id;

-- sweep
-- Gives up rows that have used all their attempts without a verdict.
--   ?1 namespace  ?2 max attempts  ?3 topics  ?4 tenant  ?5 the error of rows that have none  ?6 added to attempts of a row
--   that was claimed
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now),
exhausted as (
    select "id" as id
    from "posthaste_outbox" indexed by "posthaste_outbox_leased"
    where "namespace" = ?1 and "status" = 'processing' and "locked_until" < (select now from clock)
        and "attempts" >= ?2
        and (?3 is null or "topic" in (select value from json_each(?3)))
and (?4 is null or "tenant" = ?4)
    union all
    select "id" as id
    from "posthaste_outbox" indexed by "posthaste_outbox_tried"
    where "namespace" = ?1 and "status" = 'pending' and "attempts" > 0
        and "attempts" >= ?2
        and (?3 is null or "topic" in (select value from json_each(?3)))
and (?4 is null or "tenant" = ?4)
)
update "posthaste_outbox" indexed by "posthaste_outbox_id"
set "attempts" = "attempts" + case when "status" = 'processing' then ?6 else 0 end,
    "locked_by" = null,
    "locked_until" = null,
    "last_error" = coalesce("last_error", ?5),
    "updated_at" = (select now from clock),
    "lease_token" = null, "status" = 'dead'
where "id" in (select id from exhausted)
returning "seq" as order_0, cast("id" as text) as id;

-- purge_delivered
-- Removes delivered rows past their retention, oldest first. Their age counts from the best time that the table has.
--   ?1 retention in ms  ?2 limit  ?3 namespace, or null for all
delete from "posthaste_outbox" indexed by "posthaste_outbox_id"
where "id" in (
    select "id"
    from "posthaste_outbox" indexed by "posthaste_outbox_delivered"
    where "status" = 'delivered'
        and "delivered_at"
            < cast(unixepoch('subsec') * 1000 as integer) - ?1
        and (?3 is null or "namespace" = ?3)
    order by "delivered_at"
    limit ?2
);

-- purgeable
-- Counts what a purge would remove: delivered rows and dead rows past their retention, and dedupe keys whose window is over
-- and whose row is gone by then.
--   ?1 age of delivered rows in ms  ?2 age of dead rows in ms  ?3 namespace, or null for all
select (
    select count(*)
    from "posthaste_outbox" indexed by "posthaste_outbox_delivered"
    where "status" = 'delivered'
        and "delivered_at"
            < cast(unixepoch('subsec') * 1000 as integer) - ?1
        and (?3 is null or "namespace" = ?3)
) as delivered, (
    select count(*)
    from "posthaste_outbox" indexed by "posthaste_outbox_dead"
    where "status" = 'dead'
        and "updated_at" < cast(unixepoch('subsec') * 1000 as integer) - ?2
        and (?3 is null or "namespace" = ?3)
) as dead, (
    select count(*)
    from "posthaste_outbox_dedupe" e indexed by "posthaste_outbox_dedupe_expiry"
    where e.expires_at <= cast(unixepoch('subsec') * 1000 as integer)
        and not exists (
            select 1
            from "posthaste_outbox" o indexed by "posthaste_outbox_id"
            where o."id" = e.message_id
                and (
                    (
                        o."status" = 'delivered'
                            and o."delivered_at" < cast(unixepoch('subsec') * 1000 as integer) - ?1
                        or o."status" = 'dead'
                            and o."updated_at" < cast(unixepoch('subsec') * 1000 as integer) - ?2
                    )
                    and (?3 is null or o."namespace" = ?3)
                ) is not true
        )
) as dedupe;

-- list
-- Rows as an operator sees them. Parameters are numbered as in find.sql, which takes ids.
--   ?1 namespace  ?2 labels of the status  ?3 topic  ?4 ordering key  ?5 tenant  ?7 after the row with this id  ?8 limit
select
    "seq" as order_0, cast("seq" as integer) as seq, cast("id" as text) as id, null as event_id, cast("namespace" as text) as namespace, cast("topic" as text) as topic, cast("ordering_key" as text) as ordering_key, cast("tenant" as text) as tenant, cast("dedupe_key" as text) as dedupe_key, cast("event_type" as text) as event_type, cast("source" as text) as source, cast("aggregate_type" as text) as aggregate_type, cast("aggregate_id" as text) as aggregate_id, cast("content_type" as text) as content_type, cast("payload" as blob) as payload, cast(iif(json_valid("headers", 8), json("headers"), "headers") as text) as headers, cast("content_hash" as blob) as content_hash,
    cast("attempts" as integer) as attempts, null as max_attempts, null as version,
    cast("status" as text) as status, "next_attempt_at" as next_attempt_at,
    cast("locked_by" as text) as locked_by,
    "locked_until" as locked_until, cast("last_error" as text) as last_error,
    "created_at" as created_at,
    "updated_at" as updated_at,
    "delivered_at" as delivered_at
from "posthaste_outbox" o
where "status" in (select value from json_each(?2))
    and (?1 is null or "namespace" = ?1)
    and (?3 is null or "topic" = ?3)
    and (?4 is null or "ordering_key" = ?4)
    and (?5 is null or "tenant" = ?5)
    and "seq" > case when ?7 is null then 0 else (select "seq" from "posthaste_outbox" where "id" = ?7) end
-- By the columns, not by what was made of them above under the same names.
order by o."seq"
limit ?8;

-- find
-- Rows as an operator sees them, by their ids: what list.sql does, driven by the index on ids.
--   ?1 namespace  ?2 labels of the status  ?3 topic  ?4 ordering key  ?5 tenant  ?6 ids
--   ?7 after the row with this id  ?8 limit
select
    "seq" as order_0, cast("seq" as integer) as seq, cast("id" as text) as id, null as event_id, cast("namespace" as text) as namespace, cast("topic" as text) as topic, cast("ordering_key" as text) as ordering_key, cast("tenant" as text) as tenant, cast("dedupe_key" as text) as dedupe_key, cast("event_type" as text) as event_type, cast("source" as text) as source, cast("aggregate_type" as text) as aggregate_type, cast("aggregate_id" as text) as aggregate_id, cast("content_type" as text) as content_type, cast("payload" as blob) as payload, cast(iif(json_valid("headers", 8), json("headers"), "headers") as text) as headers, cast("content_hash" as blob) as content_hash,
    cast("attempts" as integer) as attempts, null as max_attempts, null as version,
    cast("status" as text) as status, "next_attempt_at" as next_attempt_at,
    cast("locked_by" as text) as locked_by,
    "locked_until" as locked_until, cast("last_error" as text) as last_error,
    "created_at" as created_at,
    "updated_at" as updated_at,
    "delivered_at" as delivered_at
from "posthaste_outbox" o indexed by "posthaste_outbox_id"
where "id" in (select value from json_each(?6)) and "status" in (select value from json_each(?2))
    and (?1 is null or "namespace" = ?1)
    and (?3 is null or "topic" = ?3)
    and (?4 is null or "ordering_key" = ?4)
    and (?5 is null or "tenant" = ?5)
    and (?7 is null or ("seq") > (select "seq" from "posthaste_outbox" where "id" = ?7))
-- By the columns, not by what was made of them above under the same names.
order by o."seq"
limit ?8;

-- replay
-- Begins dead rows again at their old place in the order. Guarded: a row that is no longer dead is left alone.
--   ?1 namespace  ?2 topic  ?3 ordering key  ?4 tenant  ?5 ids  ?6 limit
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now)
update "posthaste_outbox" indexed by "posthaste_outbox_id"
set
    -- Due at once, but waiting by kind: followers that wait already must not overtake it.
    "next_attempt_at" = max((select now from clock), coalesce("created_at", 0) + 1),
    "updated_at" = max((select now from clock), coalesce("created_at", 0) + 1),
    "attempts" = 0, "status" = 'pending'
where "status" = 'dead' and "id" in (
    select "id"
    from "posthaste_outbox" indexed by "posthaste_outbox_dead"
    where "status" = 'dead'
        and (?1 is null or "namespace" = ?1)
        and (?2 is null or "topic" = ?2)
        and (?3 is null or "ordering_key" = ?3)
        and (?4 is null or "tenant" = ?4)
        and (?5 is null or "id" in (select value from json_each(?5)))
    order by "seq"
    limit ?6
)
returning "seq" as order_0, cast("id" as text) as id;

-- discard
-- Removes dead rows for good. Guarded: a row that is no longer dead is left alone.
--   ?1 namespace  ?2 topic  ?3 ordering key  ?4 tenant  ?5 ids  ?6 limit
delete from "posthaste_outbox" indexed by "posthaste_outbox_id"
where "status" = 'dead' and "id" in (
    select "id"
    from "posthaste_outbox" indexed by "posthaste_outbox_dead"
    where "status" = 'dead'
        and (?1 is null or "namespace" = ?1)
        and (?2 is null or "topic" = ?2)
        and (?3 is null or "ordering_key" = ?3)
        and (?4 is null or "tenant" = ?4)
        and (?5 is null or "id" in (select value from json_each(?5)))
    order by "seq"
    limit ?6
)
returning "seq" as order_0, cast("id" as text) as id;

-- trial_rows
-- Some open rows of a scope, on which verdicts are tried before all is rolled back.
--   ?1 how many  ?2 namespace  ?3 topics  ?4 tenant
select cast(o."id" as text) as id, coalesce(o."id" = cast(o."id" as text), 0) as found_by_id
from "posthaste_outbox" o indexed by "posthaste_outbox_fresh"
where
    -- Those that have an index of their own.
    o."status" = 'pending' and o."next_attempt_at" <= o."created_at"
    and o."namespace" = ?2
    and (?3 is null or o."topic" in (select value from json_each(?3)))
    and (?4 is null or o."tenant" = ?4)
limit ?1;

-- trial_claim
-- Claims rows: to try verdicts on them, or to find out whose claim is refused. It is rolled back.
--   ?1 ids as a JSON array  ?2 worker  ?3 fence  ?4 lease in ms
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now)
update "posthaste_outbox" as o indexed by "posthaste_outbox_id"
set "status" = 'processing', "attempts" = coalesce("attempts", 0) + 1,
    "locked_by" = ?2,
    "locked_until" = (select now from clock) + ?4,
    "updated_at" = (select now from clock),
    "lease_token" = ?3
where o."id" in (select value from json_each(?1)) and ?2 is not null and ?4 is not null
returning cast("id" as text) as id;

-- purge_dead
-- Removes dead rows past their retention, those that died first before the others. Guarded: a row that is no longer dead is
-- left alone.
--   ?1 retention in ms  ?2 limit  ?3 namespace, or null for all
delete from "posthaste_outbox" indexed by "posthaste_outbox_id"
where "status" = 'dead' and "id" in (
    select "id"
    from "posthaste_outbox" indexed by "posthaste_outbox_dead"
    where "status" = 'dead'
        and "updated_at" < cast(unixepoch('subsec') * 1000 as integer) - ?1
        and (?3 is null or "namespace" = ?3)
    order by "updated_at"
    limit ?2
)
returning "seq" as order_0, cast("id" as text) as id;

-- topic_gauges
-- The topics of the oldest pending messages, those with the most first.
--   ?1 namespace  ?2 how many messages are looked at
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now),
pending as (
    select * from (
        select "topic" as topic, "created_at" as created_at
        from "posthaste_outbox" indexed by "posthaste_outbox_fresh"
        where "namespace" = ?1 and "status" = 'pending' and "next_attempt_at" <= "created_at"
        order by "seq"
        limit ?2
    )
    union all
    select * from (
        select "topic" as topic, "created_at" as created_at
        from "posthaste_outbox" indexed by "posthaste_outbox_waiting"
        where "namespace" = ?1 and "status" = 'pending' and "next_attempt_at" > "created_at"
        order by "next_attempt_at"
        limit ?2
    )
)
select coalesce(cast(topic as text), '') as topic, count(*) as pending,
    -- Anything may stand there.
    cast(max(clock.now - coalesce(min(case when typeof(created_at) = 'integer' then created_at end), clock.now), 0) as integer)
        as oldest_ms
from pending, clock
group by 1
order by count(*) desc, 1;

-- probe
-- Whether there is work, without a lock, so that an idle relay never stands in a writer's way; and what crashed workers
-- left behind: the most attempts among rows that may be tried again, and whether some may not.
--   ?1 namespace  ?2 max attempts  ?3 topics  ?4 tenant
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now)
select
    exists (
        select 1
        from "posthaste_outbox" indexed by "posthaste_outbox_fresh"
        where "namespace" = ?1 and "status" = 'pending' and "next_attempt_at" <= "created_at"
            and "attempts" < ?2
            and (?3 is null or "topic" in (select value from json_each(?3)))
            and (?4 is null or "tenant" = ?4)
    ) or exists (
        select 1
        from "posthaste_outbox" indexed by "posthaste_outbox_waiting"
        where "namespace" = ?1 and "status" = 'pending' and "next_attempt_at" > "created_at"
            and "next_attempt_at" <= (select now from clock)
            and "attempts" < ?2
            and (?3 is null or "topic" in (select value from json_each(?3)))
            and (?4 is null or "tenant" = ?4)
    ) as due,
    (
        select max(cast("attempts" as integer))
        from "posthaste_outbox" indexed by "posthaste_outbox_leased"
        where "namespace" = ?1 and "status" = 'processing' and "locked_until" < (select now from clock)
            and "attempts" < ?2
            and (?3 is null or "topic" in (select value from json_each(?3)))
            and (?4 is null or "tenant" = ?4)
    ) as most_tried,
    exists (
        select 1
        from "posthaste_outbox" indexed by "posthaste_outbox_leased"
        where "namespace" = ?1 and "status" = 'processing' and "locked_until" < (select now from clock)
            and "attempts" >= ?2
            and (?3 is null or "topic" in (select value from json_each(?3)))
            and (?4 is null or "tenant" = ?4)
    ) as exhausted;

-- claim_per_key
-- Takes due rows in order, never past an earlier row of the same key.
--   ?1 namespace  ?2 max attempts  ?3 topics  ?4 tenant  ?5 limit  ?6 max bytes  ?7 worker  ?8 token  ?9 lease in ms
--   ?10 whether dead heads block by default  ?11 topics with the other policy  ?12 how many fresh rows may be looked at
--   ?13 rows that are left out, as a JSON array
--
-- A live lease holds the whole key. The row of a vanished worker, a row that waits and a dead head that blocks hold what
-- follows them. Keys in flight are looked up in a set, the other rows by an index each. With `not in` rather than `is not true`
-- SQLite goes through all of the set, to know whether nulls are in it.
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now),
horizon as materialized (
    -- The first row that may not be looked at, if there are so many. Nothing with a key is taken from beyond it, because
    -- what comes earlier in that key may lie beyond it too.
    select coalesce((
        select "seq"
        from "posthaste_outbox" indexed by "posthaste_outbox_fresh"
        where ?12 is not null and "namespace" = ?1 and "status" = 'pending' and "next_attempt_at" <= "created_at"
        order by "seq"
        limit 1 offset coalesce(?12, 0)
    ), 9223372036854775807) as seq
),
live as materialized (
    select "topic" as topic, "ordering_key" as ordering_key
    from "posthaste_outbox" indexed by "posthaste_outbox_leased"
    where "namespace" = ?1 and "status" = 'processing' and "locked_until" >= (select now from clock)
        and "ordering_key" is not null
),
stranded as materialized (
    select topic, ordering_key, min(seq) as seq
    from (
        select "topic" as topic, "ordering_key" as ordering_key, "seq" as seq
        from "posthaste_outbox" indexed by "posthaste_outbox_leased"
        where "namespace" = ?1 and "status" = 'processing' and "locked_until" < (select now from clock)
            and "ordering_key" is not null
        union all
        -- What is left out holds back its key as the row of a vanished worker does.
        select "topic", "ordering_key", "seq"
        from "posthaste_outbox" indexed by "posthaste_outbox_id"
        where "id" in (select value from json_each(?13)) and "namespace" = ?1 and "ordering_key" is not null
    )
    group by topic, ordering_key
),
fresh as (
    select o."seq" as seq, o."id" as id, octet_length(o."payload") as bytes
    from "posthaste_outbox" o indexed by "posthaste_outbox_fresh"
    where o."namespace" = ?1 and o."status" = 'pending' and o."next_attempt_at" <= o."created_at"
        and o."seq" < (select seq from horizon)
        and o."attempts" < ?2 and o."id" not in (select value from json_each(?13))
        and (?3 is null or o."topic" in (select value from json_each(?3)))
        and (?4 is null or o."tenant" = ?4)
        and (o."ordering_key" is null or (
            ((o."topic", o."ordering_key") in (select topic, ordering_key from live)) is not true
            and (((o."topic", o."ordering_key") in (select topic, ordering_key from stranded)) is not true or not exists (
                select 1 from stranded
                where stranded.topic = o."topic" and stranded.ordering_key = o."ordering_key" and stranded.seq <= o."seq"
            ))
            and not exists (
                select 1 from "posthaste_outbox" e indexed by "posthaste_outbox_waiting_key"
                where e."namespace" = ?1 and e."topic" = o."topic" and e."ordering_key" = o."ordering_key"
                    and e."status" = 'pending' and e."next_attempt_at" > e."created_at"
                    and e."ordering_key" is not null and e."seq" < o."seq"
            )
            and ((o."topic" in (select value from json_each(?11))) = ?10 or not exists (
                select 1 from "posthaste_outbox" e indexed by "posthaste_outbox_dead"
                where e."namespace" = ?1 and e."topic" = o."topic" and e."ordering_key" = o."ordering_key"
                    and e."status" = 'dead' and e."seq" < o."seq"
            ))
        ))
    order by o."seq"
    limit ?5
),
due as (
    select o."seq" as seq, o."id" as id, octet_length(o."payload") as bytes
    from "posthaste_outbox" o indexed by "posthaste_outbox_waiting"
    where o."namespace" = ?1 and o."status" = 'pending' and o."next_attempt_at" > o."created_at"
        and o."next_attempt_at" <= (select now from clock)
        and o."attempts" < ?2 and o."id" not in (select value from json_each(?13))
        and (?3 is null or o."topic" in (select value from json_each(?3)))
        and (?4 is null or o."tenant" = ?4)
        and (o."ordering_key" is null or (
            o."seq" < (select seq from horizon)
            and ((o."topic", o."ordering_key") in (select topic, ordering_key from live)) is not true
            and (((o."topic", o."ordering_key") in (select topic, ordering_key from stranded)) is not true or not exists (
                select 1 from stranded
                where stranded.topic = o."topic" and stranded.ordering_key = o."ordering_key" and stranded.seq <= o."seq"
            ))
            and not exists (
                select 1 from "posthaste_outbox" e indexed by "posthaste_outbox_waiting_key"
                where e."namespace" = ?1 and e."topic" = o."topic" and e."ordering_key" = o."ordering_key"
                    and e."status" = 'pending' and e."next_attempt_at" > e."created_at"
                    and e."ordering_key" is not null and e."seq" < o."seq"
            )
            and ((o."topic" in (select value from json_each(?11))) = ?10 or not exists (
                select 1 from "posthaste_outbox" e indexed by "posthaste_outbox_dead"
                where e."namespace" = ?1 and e."topic" = o."topic" and e."ordering_key" = o."ordering_key"
                    and e."status" = 'dead' and e."seq" < o."seq"
            ))
        ))
    order by o."next_attempt_at", o."seq"
    limit ?5
),
picked as (
    -- The first by sequence: whatever the limits cut off lies behind what is taken, in every key.
    select id
    from (
        select id, row_number() over by_seq as place, sum(bytes) over by_seq as bytes_so_far
        from (select * from fresh union all select * from due)
        window by_seq as (order by seq)
    )
    where place = 1 or (place <= ?5 and bytes_so_far <= ?6)
)
update "posthaste_outbox" indexed by "posthaste_outbox_id"
set "status" = 'processing', "attempts" = "attempts" + 1, "locked_by" = ?7, "lease_token" = ?8,
    "locked_until" = (select now from clock) + ?9, "updated_at" = (select now from clock)
where "id" in (select id from picked)
returning "seq" as order_0, cast("seq" as integer) as seq, cast("id" as text) as id, null as event_id, cast("namespace" as text) as namespace, cast("topic" as text) as topic, cast("ordering_key" as text) as ordering_key, cast("tenant" as text) as tenant, cast("dedupe_key" as text) as dedupe_key, cast("event_type" as text) as event_type, cast("source" as text) as source, cast("aggregate_type" as text) as aggregate_type, cast("aggregate_id" as text) as aggregate_id, cast("content_type" as text) as content_type, cast("payload" as blob) as payload, cast(iif(json_valid("headers", 8), json("headers"), "headers") as text) as headers, cast("content_hash" as blob) as content_hash,
    cast("attempts" as integer) as attempts, null as max_attempts, null as version,
    "created_at" as created_at, coalesce("id" = cast("id" as text), 0) as found_by_id;

-- claim_any
-- Takes due rows; keys are ignored.
--   ?1 namespace  ?2 max attempts  ?3 topics  ?4 tenant  ?5 limit  ?6 max bytes  ?7 worker  ?8 token  ?9 lease in ms
--   ?10 rows that are left out, as a JSON array
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now),
fresh as (
    select "seq" as seq, "id" as id, octet_length("payload") as bytes
    from "posthaste_outbox" indexed by "posthaste_outbox_fresh"
    where "namespace" = ?1 and "status" = 'pending' and "next_attempt_at" <= "created_at"
        and "attempts" < ?2 and "id" not in (select value from json_each(?10))
        and (?3 is null or "topic" in (select value from json_each(?3)))
        and (?4 is null or "tenant" = ?4)
    order by "seq"
    limit ?5
),
due as (
    select "seq" as seq, "id" as id, octet_length("payload") as bytes
    from "posthaste_outbox" indexed by "posthaste_outbox_waiting"
    where "namespace" = ?1 and "status" = 'pending' and "next_attempt_at" > "created_at"
        and "next_attempt_at" <= (select now from clock)
        and "attempts" < ?2 and "id" not in (select value from json_each(?10))
        and (?3 is null or "topic" in (select value from json_each(?3)))
        and (?4 is null or "tenant" = ?4)
    order by "next_attempt_at", "seq"
    limit ?5
),
picked as (
    select id
    from (
        select id, row_number() over by_seq as place, sum(bytes) over by_seq as bytes_so_far
        from (select * from fresh union all select * from due)
        window by_seq as (order by seq)
    )
    where place = 1 or (place <= ?5 and bytes_so_far <= ?6)
)
update "posthaste_outbox" indexed by "posthaste_outbox_id"
set "status" = 'processing', "attempts" = "attempts" + 1, "locked_by" = ?7, "lease_token" = ?8,
    "locked_until" = (select now from clock) + ?9, "updated_at" = (select now from clock)
where "id" in (select id from picked)
returning "seq" as order_0, cast("seq" as integer) as seq, cast("id" as text) as id, null as event_id, cast("namespace" as text) as namespace, cast("topic" as text) as topic, cast("ordering_key" as text) as ordering_key, cast("tenant" as text) as tenant, cast("dedupe_key" as text) as dedupe_key, cast("event_type" as text) as event_type, cast("source" as text) as source, cast("aggregate_type" as text) as aggregate_type, cast("aggregate_id" as text) as aggregate_id, cast("content_type" as text) as content_type, cast("payload" as blob) as payload, cast(iif(json_valid("headers", 8), json("headers"), "headers") as text) as headers, cast("content_hash" as blob) as content_hash,
    cast("attempts" as integer) as attempts, null as max_attempts, null as version,
    "created_at" as created_at, coalesce("id" = cast("id" as text), 0) as found_by_id;

-- reclaim
-- Takes rows whose worker let the lease run out. With ?10 never past an earlier row of the same key.
--   ?1 namespace  ?2 max attempts  ?3 topics  ?4 tenant  ?5 limit  ?6 max bytes  ?7 worker  ?8 token  ?9 lease in ms
--   ?10 whether keys are ordered  ?11 whether dead heads block by default  ?12 topics with the other policy
--   ?13 rows that are left out, as a JSON array
--
-- With `not in` rather than `is not true` SQLite goes through all of a set of keys, to know whether nulls are in it.
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now),
live as materialized (
    select "topic" as topic, "ordering_key" as ordering_key
    from "posthaste_outbox" indexed by "posthaste_outbox_leased"
    where ?10 and "namespace" = ?1 and "status" = 'processing' and "locked_until" >= (select now from clock)
        and "ordering_key" is not null
),
stranded as materialized (
    select "topic" as topic, "ordering_key" as ordering_key, max("seq") as last_seq
    from "posthaste_outbox" indexed by "posthaste_outbox_leased"
    where ?10 and "namespace" = ?1 and "status" = 'processing' and "locked_until" < (select now from clock)
        and "ordering_key" is not null
    group by "topic", "ordering_key"
),
fresh as materialized (
    -- Before a row that was claimed there are few: they were released, or are out of scope.
    select "topic" as topic, "ordering_key" as ordering_key, min("seq") as seq
    from "posthaste_outbox" indexed by "posthaste_outbox_fresh"
    where "namespace" = ?1 and "status" = 'pending' and "next_attempt_at" <= "created_at"
        and "seq" < (select max(last_seq) from stranded)
        and ("topic", "ordering_key") in (select topic, ordering_key from stranded)
    group by "topic", "ordering_key"
),
left_out as materialized (
    select "topic" as topic, "ordering_key" as ordering_key, "seq" as seq
    from "posthaste_outbox" indexed by "posthaste_outbox_id"
    where ?10 and "id" in (select value from json_each(?13))
),
candidates as (
    select o."seq" as seq, o."id" as id, octet_length(o."payload") as bytes
    from "posthaste_outbox" o indexed by "posthaste_outbox_leased"
    where o."namespace" = ?1 and o."status" = 'processing' and o."locked_until" < (select now from clock)
        and o."attempts" < ?2 and o."id" not in (select value from json_each(?13))
        and (?3 is null or o."topic" in (select value from json_each(?3)))
        and (?4 is null or o."tenant" = ?4)
        and (not ?10 or o."ordering_key" is null or (
            ((o."topic", o."ordering_key") in (select topic, ordering_key from live)) is not true
            and (((o."topic", o."ordering_key") in (select topic, ordering_key from fresh)) is not true or not exists (
                select 1 from fresh
                where fresh.topic = o."topic" and fresh.ordering_key = o."ordering_key" and fresh.seq < o."seq"
            ))
            and not exists (
                select 1 from left_out
                where left_out.topic = o."topic" and left_out.ordering_key = o."ordering_key" and left_out.seq < o."seq"
            )
            and not exists (
                select 1 from "posthaste_outbox" e indexed by "posthaste_outbox_waiting_key"
                where e."namespace" = ?1 and e."topic" = o."topic" and e."ordering_key" = o."ordering_key"
                    and e."status" = 'pending' and e."next_attempt_at" > e."created_at"
                    and e."ordering_key" is not null and e."seq" < o."seq"
            )
            and ((o."topic" in (select value from json_each(?12))) = ?11 or not exists (
                select 1 from "posthaste_outbox" e indexed by "posthaste_outbox_dead"
                where e."namespace" = ?1 and e."topic" = o."topic" and e."ordering_key" = o."ordering_key"
                    and e."status" = 'dead' and e."seq" < o."seq"
            ))
        ))
    order by o."seq"
    limit ?5
),
picked as (
    select id
    from (
        select id, row_number() over by_seq as place, sum(bytes) over by_seq as bytes_so_far
        from candidates
        window by_seq as (order by seq)
    )
    where place = 1 or bytes_so_far <= ?6
)
update "posthaste_outbox" indexed by "posthaste_outbox_id"
set "status" = 'processing', "attempts" = "attempts" + 1, "locked_by" = ?7, "lease_token" = ?8,
    "locked_until" = (select now from clock) + ?9, "updated_at" = (select now from clock)
where "id" in (select id from picked)
returning "seq" as order_0, cast("seq" as integer) as seq, cast("id" as text) as id, null as event_id, cast("namespace" as text) as namespace, cast("topic" as text) as topic, cast("ordering_key" as text) as ordering_key, cast("tenant" as text) as tenant, cast("dedupe_key" as text) as dedupe_key, cast("event_type" as text) as event_type, cast("source" as text) as source, cast("aggregate_type" as text) as aggregate_type, cast("aggregate_id" as text) as aggregate_id, cast("content_type" as text) as content_type, cast("payload" as blob) as payload, cast(iif(json_valid("headers", 8), json("headers"), "headers") as text) as headers, cast("content_hash" as blob) as content_hash,
    cast("attempts" as integer) as attempts, null as max_attempts, null as version,
    "created_at" as created_at, coalesce("id" = cast("id" as text), 0) as found_by_id;

-- stats
-- Counts what is not delivered, up to a number of each kind. The oldest fresh row is the first by sequence.
--   ?1 namespace  ?2 how many rows of a kind are counted
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now),
fresh as (
    select count(*) as n from (
        select 1 from "posthaste_outbox" indexed by "posthaste_outbox_fresh"
        where "namespace" = ?1 and "status" = 'pending' and "next_attempt_at" <= "created_at"
        limit ?2
    )
),
head as (
    select "created_at" as created_at from "posthaste_outbox" indexed by "posthaste_outbox_fresh"
    where "namespace" = ?1 and "status" = 'pending' and "next_attempt_at" <= "created_at"
    order by "seq" limit 1
),
waiting as (
    select count(*) as n, count(*) filter (where next_attempt_at > (select now from clock)) as not_due,
        min(created_at) as oldest
    from (
        select "next_attempt_at" as next_attempt_at, "created_at" as created_at
        from "posthaste_outbox" indexed by "posthaste_outbox_waiting"
        where "namespace" = ?1 and "status" = 'pending' and "next_attempt_at" > "created_at"
        limit ?2
    )
),
leased as (
    select count(*) as n, min("created_at") as oldest from "posthaste_outbox" indexed by "posthaste_outbox_leased"
    where "namespace" = ?1 and "status" = 'processing'
),
given_up as (
    select count(*) as n from (
        select 1 from "posthaste_outbox" indexed by "posthaste_outbox_dead" where "namespace" = ?1 and "status" = 'dead' limit ?2
    )
),
oldest as (
    select min(created_at) as created_at
    from (select created_at from head union all select oldest from waiting union all select oldest from leased)
    -- Anything may stand there.
    where typeof(created_at) = 'integer' and created_at >= 0
)
select
    fresh.n + waiting.n as pending, waiting.not_due as waiting, leased.n as processing, given_up.n as dead,
    coalesce(clock.now - oldest.created_at, 0) as oldest_ms
from clock, fresh, waiting, leased, given_up, oldest;

-- hold_keys
-- Takes the dedupe keys of rows that were just written, also where an earlier holder's time is over.
--   ?1 rows as a JSON array  ?2 ids of those that were written  ?3 dedupe window in ms
insert into "posthaste_outbox_dedupe" (namespace, topic, dedupe_key, message_id, expires_at)
select value ->> 'namespace', value ->> 'topic', value ->> 'dedupe_key', value ->> 'id',
    cast(unixepoch('subsec') * 1000 as integer) + ?3
from json_each(?1)
where value ->> 'dedupe_key' is not null and value ->> 'id' in (select value from json_each(?2))
on conflict (namespace, topic, dedupe_key)
    do update set message_id = excluded.message_id, expires_at = excluded.expires_at;

-- find_holders
-- Why a row was not written: its id was there, or its dedupe key is held; then the holder's id comes back. Asks for no
-- time, because the answer must be the one that the insert acted on.
--   ?1 rows as a JSON array
select i.key as place, d.message_id as id, false as is_new
from json_each(?1) i
cross join "posthaste_outbox_dedupe" d indexed by "posthaste_outbox_dedupe_key" on d.namespace = i.value ->> 'namespace'
    and d.topic = i.value ->> 'topic' and d.dedupe_key = i.value ->> 'dedupe_key'
where not exists (select 1 from "posthaste_outbox" o where o."id" = i.value ->> 'id');

-- purge_dedupe
-- Frees dedupe keys whose window is over and whose row is gone.
--   ?1 limit
delete from "posthaste_outbox_dedupe" indexed by "posthaste_outbox_dedupe_key"
where (namespace, topic, dedupe_key) in (
    select namespace, topic, dedupe_key
    from "posthaste_outbox_dedupe" e indexed by "posthaste_outbox_dedupe_expiry"
    where expires_at <= cast(unixepoch('subsec') * 1000 as integer)
        and not exists (select 1 from "posthaste_outbox" o where o."id" = e.message_id)
    order by expires_at
    limit ?1
);

-- restore
-- Makes a row that was inserted in this transaction the dead one that it was.
--   ?1 its id  ?2 the id that it had  ?3 attempts  ?4 error  ?5 time of the first insert, in ms since 1970  ?6 dedupe key
--   ?7 hash in hexadecimal digits
update "posthaste_outbox"
set "status" = 'dead'
    , "attempts" = ?3
    , "last_error" = ?4
    , "created_at" = ?5
    , "dedupe_key" = ?6
    , "content_hash" = unhex(?7)
where "id" = ?1;

-- record_inbox
-- Records a delivery in the handler's transaction; no row is written if it was recorded before.
insert into "posthaste_inbox" (consumer, key) values (?1, ?2) on conflict (consumer, key) do nothing;

-- purge_inbox
-- Forgets what one consumer handled longer ago than the broker can deliver again.
--   ?1 consumer  ?2 retention in ms  ?3 limit
delete from "posthaste_inbox" indexed by "posthaste_inbox_key"
where (consumer, key) in (
    select consumer, key
    from "posthaste_inbox" indexed by "posthaste_inbox_handled"
    where consumer = ?1 and handled_at < cast(unixepoch('subsec') * 1000 as integer) - ?2
    order by handled_at
    limit ?3
);

-- heartbeat
-- Says that a relay is there. Its first heartbeat is its start.
--   ?1 worker  ?2 namespace  ?3 publisher  ?4 host  ?5 pid  ?6 version  ?7 circuit  ?8 for how long in ms  ?9 reason
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now)
insert into "posthaste_relays" (
    worker, namespace, publisher, host, pid, version, started_at, seen_at, circuit, circuit_since, circuit_reason
)
select ?1, ?2, ?3, ?4, ?5, ?6, now, now, ?7, now - ?8, ?9 from clock where true
on conflict (worker) do update set
    namespace = excluded.namespace, publisher = excluded.publisher, host = excluded.host, pid = excluded.pid,
    version = excluded.version, seen_at = excluded.seen_at, circuit = excluded.circuit,
    circuit_since = excluded.circuit_since, circuit_reason = excluded.circuit_reason;

-- deregister
-- Takes a relay off the list.
--   ?1 worker
delete from "posthaste_relays" where worker = ?1;

-- leader
-- Who leads, other than the one who asks; a look before the leap, so that relays that stand by do not write.
--   ?1 namespace  ?2 worker
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now)
select worker, until - now as left_ms
from "posthaste_leaders", clock
where namespace = ?1 and worker <> ?2 and until > now;

-- elect_leader
-- Takes the lead, or keeps it, unless another relay's lease is not over. No row comes back if one was quicker.
--   ?1 namespace  ?2 worker  ?3 lease in ms
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now)
insert into "posthaste_leaders" as l (namespace, worker, since, until)
select ?1, ?2, now, now + ?3 from clock where true
on conflict (namespace) do update set
    worker = excluded.worker, until = excluded.until,
    since = case when l.worker = excluded.worker then l.since else excluded.since end
where l.worker = excluded.worker or l.until <= excluded.since
returning worker;

-- step_down
-- Ends a relay's leadership.
--   ?1 worker
delete from "posthaste_leaders" where worker = ?1;

-- relays
-- The relays of a namespace, oldest first.
--   ?1 namespace
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now)
select
    r.worker, r.namespace, r.publisher, r.host, r.pid, r.version, r.started_at, r.seen_at,
    max(clock.now - r.seen_at, 0) as silent_ms, r.circuit, r.circuit_since, r.circuit_reason,
    exists (
        select 1 from "posthaste_leaders" l where l.namespace = r.namespace and l.worker = r.worker and l.until > clock.now
    ) as leads
from "posthaste_relays" r, clock
where r.namespace = ?1
order by r.started_at, r.worker;

-- forget_relays
-- Forgets relays that died without leaving.
--   ?1 worker that is not meant  ?2 silence in ms
delete from "posthaste_relays" where worker <> ?1 and seen_at < cast(unixepoch('subsec') * 1000 as integer) - ?2;

