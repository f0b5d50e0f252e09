-- check
-- Names every column that the table map does, so that a wrong one is found before the first claim.
select "id", "payload", "status"
    , "seq"
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
    , "locked_by"
    , "lease_token"
    , "locked_until"
    , "last_error"
    , "created_at"
    , "updated_at"
    , "delivered_at"
from "posthaste"."outbox"
where false and "status" in ('pending', 'delivered', 'dead' , 'processing');

-- purge_delivered
-- Removes delivered rows past their retention, oldest first.
--   $1 age in ms  $2 limit  $3 namespace, or null for all
with chosen as materialized (
    select o."id" as id
    from "posthaste"."outbox" o
    where o."status" = 'delivered'
        and o."delivered_at" < now() - $1::bigint * interval '1 millisecond'
        and ($3::text is null or o."namespace"::text = $3)
    order by o."delivered_at"
    limit $2
    for update skip locked
)
delete from "posthaste"."outbox" o where o."id" = any (array(select id from chosen));

-- purgeable
-- Counts what a purge would remove: delivered rows and dead rows past their retention, and dedupe keys whose window is over
-- and whose row is gone by then.
--   $1 age of delivered rows in ms  $2 namespace, or null for all  $3 age of dead rows in ms
select (
    select count(*)
    from "posthaste"."outbox" o
    where o."status" = 'delivered'
        and o."delivered_at" < now() - $1::bigint * interval '1 millisecond'
        and ($2::text is null or o."namespace"::text = $2)
) as delivered, (
    select count(*)
    from "posthaste"."outbox" o
    where o."status" = 'dead'
        and o."updated_at" < now() - $3::bigint * interval '1 millisecond'
        and ($2::text is null or o."namespace"::text = $2)
) as dead, (
    select count(*)
    from "posthaste"."outbox_dedupe" d
    where d.expires_at <= now()
        and not exists (
            select from "posthaste"."outbox" o
            where o."id" = d.message_id
                and (
                    (
                        o."status" = 'delivered' and o."delivered_at" < now() - $1::bigint * interval '1 millisecond'
                        or o."status" = 'dead' and o."updated_at" < now() - $3::bigint * interval '1 millisecond'
                    )
                    and ($2::text is null or o."namespace" = $2)
                ) is not true
        )
) as dedupe;

-- stats
-- Counts what is not delivered.
--   $1 namespace  $2 how many rows of a kind are counted
-- Of more, nobody needs the last digit every few seconds: the number is what the server believes to be in the index. The
-- oldest fresh row is the first by sequence.
with fresh as (
    select count(*) as n from (
        select from "posthaste"."outbox"
        where "namespace" = $1 and "status" = 'pending' and "next_attempt_at" <= "created_at"
        limit $2::bigint + 1
    ) counted
),
head as (
    select "created_at" as created_at from "posthaste"."outbox"
    where "namespace" = $1 and "status" = 'pending' and "next_attempt_at" <= "created_at"
    order by "seq" limit 1
),
waiting as (
    select count(*) as n, count(*) filter (where next_attempt_at <= now()) as due, min(created_at) as oldest
    from (
        select "next_attempt_at" as next_attempt_at, "created_at" as created_at
        from "posthaste"."outbox"
        where "namespace" = $1 and "status" = 'pending' and "next_attempt_at" > "created_at"
        order by "next_attempt_at"
        limit $2::bigint + 1
    ) counted
),
leased as (
    select count(*) as n, min("created_at") as oldest from "posthaste"."outbox"
    where "namespace" = $1 and "status" = 'processing'
),
given_up as (
    select count(*) as n from (
        select from "posthaste"."outbox" where "namespace" = $1 and "status" = 'dead' limit $2::bigint + 1
    ) counted
),
estimates as (
    select coalesce(max(c.reltuples) filter (where c.relname = 'outbox_fresh'), 0)::bigint as fresh,
        coalesce(max(c.reltuples) filter (where c.relname = 'outbox_waiting'), 0)::bigint as waiting,
        coalesce(max(c.reltuples) filter (where c.relname = 'outbox_dead'), 0)::bigint as dead
    from pg_catalog.pg_index i
    join pg_catalog.pg_class c on c.oid = i.indexrelid
    where i.indrelid = (select o.tableoid from "posthaste"."outbox" o limit 1)
),
counts as (
    select case when fresh.n > $2::bigint then greatest(fresh.n, estimates.fresh) else fresh.n end as fresh,
        case when waiting.n > $2::bigint then greatest(waiting.n, estimates.waiting) else waiting.n end as waiting,
        waiting.due,
        leased.n as leased,
        case when given_up.n > $2::bigint then greatest(given_up.n, estimates.dead) else given_up.n end as dead,
        least((select created_at from head), waiting.oldest, leased.oldest) as oldest
    from fresh, waiting, leased, given_up, estimates
)
select
    fresh + waiting as pending, waiting - due as waiting, leased as processing, dead,
    case when isfinite(oldest) then extract(epoch from now() - oldest) else 0 end::float8 as oldest_seconds
from counts;

-- list
-- Rows as an operator sees them.
select
    o."seq"::bigint as seq, o."id"::text as id, null::text as event_id, o."namespace"::text as namespace, o."topic"::text as topic, o."ordering_key"::text as ordering_key, o."tenant"::text as tenant, o."dedupe_key"::text as dedupe_key, o."event_type"::text as event_type, o."source"::text as source, o."aggregate_type"::text as aggregate_type, o."aggregate_id"::text as aggregate_id, o."content_type"::text as content_type, o."payload" as payload, o."headers"::text as headers, o."content_hash" as content_hash, null::bigint::bigint as max_attempts,
    null::bigint::bigint as version,
    o."status"::text as status, coalesce(o."attempts", 0)::bigint as attempts,
    coalesce(case when o."next_attempt_at" > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when o."next_attempt_at" < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else o."next_attempt_at" end, case when o."created_at" > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when o."created_at" < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else o."created_at" end)
        as next_attempt_at,
    o."locked_by"::text as locked_by,
    case when o."locked_until" > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when o."locked_until" < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else o."locked_until" end as locked_until,
    o."last_error"::text as last_error, case when o."created_at" > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when o."created_at" < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else o."created_at" end as created_at,
    coalesce(case when o."updated_at" > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when o."updated_at" < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else o."updated_at" end, case when o."created_at" > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when o."created_at" < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else o."created_at" end)
        as updated_at,
    case when o."delivered_at" > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when o."delivered_at" < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else o."delivered_at" end as delivered_at
from "posthaste"."outbox" o
where ($1::text is null or o."namespace"::text = $1)
    and ($2::text[] is null or o."status"::text = any ($2))
    and ($3::text is null or o."topic"::text = $3)
    and ($4::text is null or o."ordering_key"::text = $4)
    and ($5::text is null or o."tenant"::text = $5)
    and ($6::text[] is null or o."id" = any ($6::text[]::uuid[]))
    -- As a condition on the index; nothing comes after a row that is gone.
    and o."seq" + 0 > case when $7::text is null then 0
        else (select a."seq" from "posthaste"."outbox" a where a."id" = $7::text::uuid) end
order by o."seq" + 0
limit $8;

-- replay
-- Begins dead rows again at their old place in the order. Guarded: a row that is no longer dead is left alone.
with chosen as materialized (
    select o."id" as id
    from "posthaste"."outbox" o
    where o."status" = 'dead'
        and ($1::text is null or o."namespace"::text = $1)
        and ($2::text is null or o."topic"::text = $2)
        and ($3::text is null or o."ordering_key"::text = $3)
        and ($4::text is null or o."tenant"::text = $4)
        and ($5::text[] is null or o."id" = any ($5::text[]::uuid[]))
    order by o."seq"
    limit $6
    -- Waiting: past a row that is locked, later ones of its key would come before it.
    for update
)
update "posthaste"."outbox" o
set "status" = 'pending'
    , "attempts" = 0
    , "next_attempt_at" = -- Due at once, but waiting by kind: followers that wait already must not overtake it.
        greatest(now(), o."created_at" + interval '1 microsecond')
    , "updated_at" = now()
where o."id" = any (array(select id from chosen))
returning o."id"::text as id;

-- discard
-- Removes dead rows for good. Guarded: a row that is no longer dead is left alone.
with chosen as materialized (
    select o."id" as id
    from "posthaste"."outbox" o
    where o."status" = 'dead'
        and ($1::text is null or o."namespace"::text = $1)
        and ($2::text is null or o."topic"::text = $2)
        and ($3::text is null or o."ordering_key"::text = $3)
        and ($4::text is null or o."tenant"::text = $4)
        and ($5::text[] is null or o."id" = any ($5::text[]::uuid[]))
    order by o."seq"
    limit $6
    for update
)
delete from "posthaste"."outbox" o
where o."id" = any (array(select id from chosen))
returning o."id"::text as id;

-- settle
-- Applies changes to rows that are still held: under their token, or by locks of this transaction. The ids that come back
-- were settled. What changes is decided before; null leaves a column as it is. Times are the statement's: a transaction
-- that held its rows while they were published began long ago.
--   $1 ids  $2 tokens  $3 new states  $4 added to attempts  $5 waits in ms  $6 errors  $7 whether delivered
--   $8 whether a dead letter is written  $9 versions
with settled as (
    update "posthaste"."outbox" o
    set "status" = case s.status
            when 'pending' then 'pending' when 'waiting' then 'pending'
            when 'delivered' then 'delivered' when 'dead' then 'dead'
            else o."status" end
        , "attempts" = coalesce(o."attempts", 0) + s.attempts
        , "next_attempt_at" = case when s.delay_ms is null then o."next_attempt_at"
            else -- What waits lies strictly after created_at: that is what marks a row as waiting.
                greatest(statement_timestamp() + s.delay_ms * interval '1 millisecond',
                    o."created_at" + interval '1 microsecond')
            end
        , "lease_token" = null
        , "locked_by" = null
        , "locked_until" = null
        , "last_error" = coalesce(s.error, o."last_error")
        , "delivered_at" = case when s.delivered
            then statement_timestamp() end
        , "updated_at" = statement_timestamp()
    from unnest($1::text[]::uuid[], $2::text[], $3::text[], $4::integer[], $5::bigint[], $6::text[],
            $7::boolean[], $8::boolean[], $9::bigint[])
        as s (id, token, status, attempts, delay_ms, error, delivered, dead_letter, version)
    where o."id" = s.id
        and o."lease_token"::text = s.token and o."status" = 'processing'
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
from "posthaste"."outbox" o
where o."status" in ('pending')
    -- One that has used up its attempts is not claimed, and its table may refuse one more.
    and coalesce(o."attempts", 0) = 0
    -- Those that have an index of their own.
    and o."next_attempt_at" <= o."created_at"
    and o."namespace"::text = $2
    and ($3::text[] is null or o."topic"::text = any ($3))
    and ($4::text is null or o."tenant"::text = $4)
-- By that index, and not past all that was delivered until some are found.
order by o."seq"
limit $1
for update skip locked;

-- claim_any
-- Takes due rows, skipping what others hold; keys are ignored.
--   $1 namespace  $2 max attempts  $3 topics  $4 tenant  $5 limit  $6 max bytes  $7 worker  $8 token  $9 lease in ms
--   $10 rows that are left out  $11 whether nothing is taken where vanished workers left something
with expired as materialized (
    -- What vanished workers left: the most attempts among rows that may be tried again, and how many may not.
    select max(o."attempts") filter (where o."attempts" < $2::integer)::bigint as most_tried,
        count(*) filter (where o."attempts" >= $2::integer) as exhausted,
        not $11::boolean or count(*) = 0 as is_passed
    from "posthaste"."outbox" o
    where o."namespace" = $1 and o."status" = 'processing' and o."locked_until" < now()
        and ($3::text[] is null or o."topic" = any ($3))
        and ($4::text is null or o."tenant" = $4)
),
fresh as (
    select "id" as id, "seq" as seq, octet_length("payload") as bytes
    from "posthaste"."outbox"
    where "namespace" = $1 and "status" = 'pending' and "next_attempt_at" <= "created_at"
        and "attempts" < $2 and "id" not in (select unnest($10::text[]::uuid[]))
        and ($3::text[] is null or "topic" = any ($3))
        and ($4::text is null or "tenant" = $4)
        and (select is_passed from expired)
    order by "seq"
    limit $5
    for update skip locked
),
due as (
    select "id" as id, "seq" as seq, octet_length("payload") as bytes
    from "posthaste"."outbox"
    where "namespace" = $1 and "status" = 'pending' and "next_attempt_at" > "created_at"
        and "next_attempt_at" <= now()
        and "attempts" < $2 and "id" not in (select unnest($10::text[]::uuid[]))
        and ($3::text[] is null or "topic" = any ($3))
        and ($4::text is null or "tenant" = $4)
        and (select is_passed from expired)
    order by "next_attempt_at", "seq"
    limit $5
    for update skip locked
),
picked as (
    select id
    from (
        select id, bytes, row_number() over by_seq as place, sum(bytes) over by_seq - bytes as bytes_before
        from (select * from fresh union all select * from due) candidates
        window by_seq as (order by seq)
    ) rows
    where place <= $5 and (bytes_before = 0 or bytes_before + bytes <= $6)
)
, taken as (
    update "posthaste"."outbox" o
    set "status" = 'processing', "attempts" = o."attempts" + 1,
        "locked_by" = $7::text::uuid,
        "lease_token" = $8::text::uuid, "locked_until" = now() + $9::bigint * interval '1 millisecond', "updated_at" = now()
    where o."id" = any (array(select id from picked))
    returning o."seq"::bigint as seq, o."id"::text as id, null::text as event_id, o."namespace"::text as namespace, o."topic"::text as topic, o."ordering_key"::text as ordering_key, o."tenant"::text as tenant, o."dedupe_key"::text as dedupe_key, o."event_type"::text as event_type, o."source"::text as source, o."aggregate_type"::text as aggregate_type, o."aggregate_id"::text as aggregate_id, o."content_type"::text as content_type, o."payload" as payload, o."headers"::text as headers, o."content_hash" as content_hash, o."attempts"::bigint as attempts,
        null::bigint::bigint as max_attempts, null::bigint::bigint as version,
        case when o."created_at" > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when o."created_at" < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else o."created_at" end as created_at
)
-- One row at least: what vanished workers left.
select t.*, e.most_tried, e.exhausted from expired e left join taken t on true;

-- claim_per_key
-- Takes due rows in order, never past an earlier row of the same key. Runs under the claim lock.
--   $1 namespace  $2 max attempts  $3 topics  $4 tenant  $5 limit  $6 max bytes  $7 worker  $8 token  $9 lease in ms
--   $10 whether dead heads block by default  $11 topics with the other policy  $12 whether any topic blocks
--   $13 how much is looked at: so many fresh and so many due rows, or with $14 so many lanes of each
--   $14 whether lanes are looked at, one by one, rather than rows in sequence  $15 bytes that were claimed before
--   $16 whether everything is looked at, in one pass  $17 rows that are left out
--   $18 whether nothing is taken where vanished workers left something
--
-- A lane is a topic and a key, and the empty text stands for no key. Only what is claimed is paid for: of the lanes that
-- are seen, what could hold them back is asked for by index, once for each lane. So the first rows in sequence are enough
-- while most lanes are free. Where they are not, a backlog of many rows mostly has few lanes, which are found by a loose
-- scan: each step goes to the next lane, past all rows of the last one. Where there are too many for that, all that hold
-- something back are gathered in one set, and the rows are passed by it once.
--
-- "not in" rather than a join: a hashed subplan, whatever the planner expects. Likewise "= any (array(...))" rather
-- than "in (...)": rows are fetched by index.
with recursive expired as materialized (
    -- What vanished workers left: the most attempts among rows that may be tried again, and how many may not.
    select max(o."attempts") filter (where o."attempts" < $2::integer)::bigint as most_tried,
        count(*) filter (where o."attempts" >= $2::integer) as exhausted,
        not $18::boolean or count(*) = 0 as is_passed
    from "posthaste"."outbox" o
    where o."namespace" = $1 and o."status" = 'processing' and o."locked_until" < now()
        and ($3::text[] is null or o."topic" = any ($3))
        and ($4::text is null or o."tenant" = $4)
),
leased as materialized (
    select "topic" as topic, "ordering_key" as ordering_key, "seq" as seq, "locked_until" >= now() as live
    from "posthaste"."outbox"
    where "namespace" = $1 and "status" = 'processing' and "ordering_key" is not null
    union all
    -- What is left out holds back its lane as the row of a vanished worker does.
    select "topic", "ordering_key", "seq", false
    from "posthaste"."outbox"
    where "id" = any ($17::text[]::uuid[]) and "namespace" = $1 and "ordering_key" is not null
),
blockers as materialized (
    -- Where each lane is held back at first; a live lease holds all of it.
    select topic, ordering_key, min(seq) as seq
    from (
        select "topic" as topic, "ordering_key" as ordering_key, "seq" as seq
        from "posthaste"."outbox"
        where $16 and "namespace" = $1 and "status" = 'pending' and "next_attempt_at" > "created_at"
            and "ordering_key" is not null
        union all
        select topic, ordering_key, case when live then 0 else seq end from leased where $16
        union all
        select "topic", "ordering_key", "seq"
        from "posthaste"."outbox"
        where $16 and $12 and ("topic" = any ($11::text[])) <> $10 and "namespace" = $1 and "status" = 'dead'
            and "ordering_key" is not null
    ) b
    group by topic, ordering_key
),
fresh_lanes as (
    (
        select "topic" as topic, coalesce("ordering_key", '') as lane, "seq" as seq, 1::bigint as place
        from "posthaste"."outbox"
        where $14 and "namespace" = $1 and "status" = 'pending' and "next_attempt_at" <= "created_at"
        order by "topic", coalesce("ordering_key", ''), "seq"
        limit 1
    )
    union all
    select n.topic, n.lane, n.seq, l.place + 1
    from fresh_lanes l
    cross join lateral (
        select "topic" as topic, coalesce("ordering_key", '') as lane, "seq" as seq
        from "posthaste"."outbox"
        where "namespace" = $1 and "status" = 'pending' and "next_attempt_at" <= "created_at"
            and ("topic", coalesce("ordering_key", '')) > (l.topic, l.lane)
        order by "topic", coalesce("ordering_key", ''), "seq"
        limit 1
    ) n
    where l.place < $13
),
waiting_lanes as (
    (
        select "topic" as topic, "ordering_key" as lane, "next_attempt_at" <= now() as due, 1::bigint as place
        from "posthaste"."outbox"
        where $14 and "namespace" = $1 and "status" = 'pending' and "next_attempt_at" > "created_at"
            and "ordering_key" is not null
        order by "topic", "ordering_key", "seq"
        limit 1
    )
    union all
    select n.topic, n.lane, n.due, l.place + 1
    from waiting_lanes l
    cross join lateral (
        select "topic" as topic, "ordering_key" as lane, "next_attempt_at" <= now() as due
        from "posthaste"."outbox"
        where "namespace" = $1 and "status" = 'pending' and "next_attempt_at" > "created_at"
            and "ordering_key" is not null and ("topic", "ordering_key") > (l.topic, l.lane)
        order by "topic", "ordering_key", "seq"
        limit 1
    ) n
    where l.place < $13
),
free_lanes as materialized (
    -- Rows of a lane that is held back from its beginning are not worth the look.
    select topic, lane
    from fresh_lanes l
    where ($3::text[] is null or topic = any ($3))
        and (topic, lane) not in (select topic, ordering_key from leased where live)
        and not exists (
            select from "posthaste"."outbox" e
            where e."namespace" = $1 and e."topic" = l.topic and e."ordering_key" = l.lane
                and e."status" = 'pending' and e."next_attempt_at" > e."created_at" and e."seq" < l.seq
        )
        and not exists (
            select from leased e where not e.live and e.topic = l.topic and e.ordering_key = l.lane and e.seq <= l.seq
        )
        and not ($12 and (topic = any ($11::text[])) <> $10 and exists (
            select from "posthaste"."outbox" e
            where e."namespace" = $1 and e."topic" = l.topic and e."ordering_key" = l.lane
                and e."status" = 'dead' and e."seq" < l.seq
        ))
),
seen_fresh as materialized (
    (
        select "id" as id, "seq" as seq, "topic" as topic, "ordering_key" as ordering_key,
            octet_length("payload") as bytes
        from "posthaste"."outbox"
        where not $14 and not $16 and "namespace" = $1 and "status" = 'pending'
            and "next_attempt_at" <= "created_at"
            and "attempts" < $2 and "id" not in (select unnest($17::text[]::uuid[]))
            and ($3::text[] is null or "topic" = any ($3))
            and ($4::text is null or "tenant" = $4)
        order by "seq"
        limit (select $13::bigint) -- as a parameter a missing limit would be planned as a scan and sort of everything
    )
    union all
    (
        select "id", "seq", "topic", "ordering_key", octet_length("payload")
        from "posthaste"."outbox"
        where $16 and "namespace" = $1 and "status" = 'pending' and "next_attempt_at" <= "created_at"
            and "attempts" < $2 and "id" not in (select unnest($17::text[]::uuid[]))
            and ($3::text[] is null or "topic" = any ($3))
            and ($4::text is null or "tenant" = $4)
            and ("ordering_key" is null or ("topic", "ordering_key") not in (select topic, ordering_key from blockers))
        order by "seq"
        limit (select $5::bigint)
    )
    union all
    -- What comes before that which holds back its lane.
    select r.*
    from blockers b
    cross join lateral (
        select "id", "seq", "topic", "ordering_key", octet_length("payload")
        from "posthaste"."outbox" o
        where "namespace" = $1 and "status" = 'pending' and "next_attempt_at" <= "created_at"
            and "topic" = b.topic and coalesce("ordering_key", '') = b.ordering_key and "seq" < b.seq
            and "attempts" < $2
            and ($4::text is null or "tenant" = $4)
        order by "topic", coalesce("ordering_key", ''), "seq"
        limit (select $5::bigint)
    ) r
    where b.seq > (
            select "seq"
            from "posthaste"."outbox"
            where $16 and "namespace" = $1 and "status" = 'pending' and "next_attempt_at" <= "created_at"
            order by "seq"
            limit 1
        )
        and ($3::text[] is null or b.topic = any ($3))
    union all
    select r.*
    from free_lanes l
    cross join lateral (
        select "id", "seq", "topic", "ordering_key", octet_length("payload")
        from "posthaste"."outbox" o
        where "namespace" = $1 and "status" = 'pending' and "next_attempt_at" <= "created_at"
            and "topic" = l.topic and coalesce("ordering_key", '') = l.lane
            and "attempts" < $2 and "id" not in (select unnest($17::text[]::uuid[]))
            and ($4::text is null or "tenant" = $4)
        order by "topic", coalesce("ordering_key", ''), "seq"
        -- Some may have little; all of them together need not bring much more than is wanted.
        limit least($5::bigint, (select $5::bigint * 5 / count(*) + 1 from free_lanes))
    ) r
),
seen_lanes as materialized (
    select topic, ordering_key, min(seq) as first
    from seen_fresh
    -- Mostly nothing waits and nothing dead blocks: then no lane has to be asked.
    where ($12 or (
            select "seq"
            from "posthaste"."outbox"
            where "namespace" = $1 and "status" = 'pending' and "next_attempt_at" > "created_at"
                and "ordering_key" is not null
            order by "topic", "ordering_key", "seq" -- whatever the planner expects, by index
            limit 1
        ) is not null)
        and ordering_key is not null and (topic, ordering_key) not in (select topic, ordering_key from leased where live)
    group by topic, ordering_key
),
holds as materialized (
    -- What holds back the rows of each lane that come after it, and whether that is all that were seen.
    select l.topic, l.ordering_key, h.seq < l.first as from_start
    from seen_lanes l
    cross join lateral (
        (
            select "seq" as seq
            from "posthaste"."outbox"
            where "namespace" = $1 and "topic" = l.topic and "ordering_key" = l.ordering_key
                and "status" = 'pending' and "next_attempt_at" > "created_at"
            order by "seq"
            limit 1
        )
        union all
        (
            select "seq"
            from "posthaste"."outbox"
            where $12 and (l.topic = any ($11::text[])) <> $10
                and "namespace" = $1 and "topic" = l.topic and "ordering_key" = l.ordering_key
                and "status" = 'dead'
            order by "seq"
            limit 1
        )
    ) h
),
fresh as materialized (
    select id, seq, topic, ordering_key, bytes
    from seen_fresh s
    where ordering_key is null or (
        (topic, ordering_key) not in (select topic, ordering_key from leased where live)
        and (topic, ordering_key) not in (select topic, ordering_key from holds where from_start)
        and (
            (topic, ordering_key) not in (select topic, ordering_key from holds where not from_start)
            or not exists (
                select from "posthaste"."outbox" e
                where e."namespace" = $1 and e."topic" = s.topic and e."ordering_key" = s.ordering_key
                    and e."status" = 'pending' and e."next_attempt_at" > e."created_at" and e."seq" < s.seq
            ) and not ($12 and (s.topic = any ($11::text[])) <> $10 and exists (
                select from "posthaste"."outbox" e
                where e."namespace" = $1 and e."topic" = s.topic and e."ordering_key" = s.ordering_key
                    and e."status" = 'dead' and e."seq" < s.seq
            ))
        )
        and (
            (topic, ordering_key) not in (select topic, ordering_key from leased where not live)
            or not exists (
                select from leased e
                where not e.live and e.topic = s.topic and e.ordering_key = s.ordering_key and e.seq <= s.seq
            )
        )
    )
    order by seq
    limit $5
),
seen_due as materialized (
    -- Those without a key have no lane.
    select "id" as id, "seq" as seq, "topic" as topic, "ordering_key" as ordering_key,
        octet_length("payload") as bytes
    from "posthaste"."outbox"
    where (not $14 or "ordering_key" is null) and "namespace" = $1 and "status" = 'pending' and "next_attempt_at" > "created_at"
        and "next_attempt_at" <= now()
        and "attempts" < $2 and "id" not in (select unnest($17::text[]::uuid[]))
        and ($3::text[] is null or "topic" = any ($3))
        and ($4::text is null or "tenant" = $4)
    order by "next_attempt_at", "seq"
    limit (select $13::bigint)
),
due_lanes as (
    select topic, ordering_key, count(*) as many from seen_due where ordering_key is not null group by topic, ordering_key
    union all
    select topic, lane, $5::bigint from waiting_lanes where due and ($3::text[] is null or topic = any ($3))
),
due as (
    select id, seq, topic, ordering_key, bytes from seen_due where ordering_key is null
    union all
    select id, seq, topic, ordering_key, bytes
    from (
        select *,
            -- All earlier rows of the lane go along. A retry goes alone: if it fails again, nothing after it is touched.
            coalesce(bool_and(is_due and not tried) over (
                partition by topic, ordering_key order by seq rows between unbounded preceding and 1 preceding
            ), true) as unbroken,
            min(first_fresh) over lane as held_by_fresh, min(first_dead) over lane as held_by_dead
        from (
            select r.*,
                case when is_first then (
                    select e."seq"
                    from "posthaste"."outbox" e
                    where e."namespace" = $1 and e."topic" = r.topic and coalesce(e."ordering_key", '') = r.ordering_key
                        and e."status" = 'pending' and e."next_attempt_at" <= e."created_at" and e."attempts" < $2
                        and ($4::text is null or e."tenant" = $4)
                    order by e."topic", coalesce(e."ordering_key", ''), e."seq"
                    limit 1
                ) end as first_fresh,
                case when is_first and $12 and (r.topic = any ($11::text[])) <> $10 then (
                    select e."seq"
                    from "posthaste"."outbox" e
                    where e."namespace" = $1 and e."topic" = r.topic and e."ordering_key" = r.ordering_key
                        and e."status" = 'dead'
                    order by e."seq"
                    limit 1
                ) end as first_dead
            from due_lanes l
            cross join lateral (
                select "id" as id, "seq" as seq, "topic" as topic, "ordering_key" as ordering_key,
                    octet_length("payload") as bytes, "attempts" > 0 as tried, row_number() over (order by "seq") = 1 as is_first,
                    "next_attempt_at" <= now() and "attempts" < $2 and ($4::text is null or "tenant" = $4) as is_due
                from "posthaste"."outbox"
                where "namespace" = $1 and "topic" = l.topic and "ordering_key" = l.ordering_key
                    and "status" = 'pending' and "next_attempt_at" > "created_at"
                order by "seq"
                limit l.many
            ) r
            where (l.topic, l.ordering_key) not in (select topic, ordering_key from leased where live)
        ) probed
        window lane as (partition by topic, ordering_key)
    ) judged
    where is_due and unbroken
        and (
            (topic, ordering_key) not in (select topic, ordering_key from leased where not live)
            or not exists (
                select from leased e
                where not e.live and e.topic = judged.topic and e.ordering_key = judged.ordering_key
                    and e.seq <= judged.seq
            )
        )
        -- A scheduled row takes its turn by sequence, so that it cannot overtake fresh rows of its key.
        and seq < coalesce(held_by_fresh, 9223372036854775807)
        and seq < coalesce(held_by_dead, 9223372036854775807)
),
candidates as materialized (
    select *
    from (select * from fresh union all select * from due) either
    where (select is_passed from expired)
    order by seq
    limit $5
),
locked as materialized (
    select o."id" as id
    from "posthaste"."outbox" o
    where o."id" = any (array(select id from candidates)) and o."status" = 'pending'
    for update skip locked
),
measured as materialized (
    select id, topic, ordering_key, seq, bytes, id in (select id from locked) as ours,
        sum(bytes) over (order by seq) - bytes + $15::bigint as bytes_before
    from candidates
),
broken as materialized (
    -- A row that somebody else has locked holds back what follows it in its key.
    select topic, ordering_key, min(seq) as seq from measured where not ours group by topic, ordering_key
),
picked as (
    select id
    from measured m
    where ours and (bytes_before = 0 or bytes_before + bytes <= $6)
        and (ordering_key is null or (topic, ordering_key) not in (select topic, ordering_key from broken)
            or not exists (
                select from broken b where b.topic = m.topic and b.ordering_key = m.ordering_key and b.seq < m.seq
            ))
)
, taken as (
    update "posthaste"."outbox" o
    set "status" = 'processing', "attempts" = o."attempts" + 1,
        "locked_by" = $7::text::uuid,
        "lease_token" = $8::text::uuid,
        "locked_until" = now() + $9::bigint * interval '1 millisecond', "updated_at" = now()
    where o."id" = any (array(select id from picked))
    returning o."seq"::bigint as seq, o."id"::text as id, null::text as event_id, o."namespace"::text as namespace, o."topic"::text as topic, o."ordering_key"::text as ordering_key, o."tenant"::text as tenant, o."dedupe_key"::text as dedupe_key, o."event_type"::text as event_type, o."source"::text as source, o."aggregate_type"::text as aggregate_type, o."aggregate_id"::text as aggregate_id, o."content_type"::text as content_type, o."payload" as payload, o."headers"::text as headers, o."content_hash" as content_hash, o."attempts"::bigint as attempts,
        null::bigint::bigint as max_attempts, null::bigint::bigint as version,
        case when o."created_at" > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when o."created_at" < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else o."created_at" end as created_at
)
-- One row at least: how much there was to be looked at, and whether there was more than the bytes allow.
select t.*, s.looked_at, s.is_full, e.most_tried, e.exhausted
from expired e
cross join (
    select case when $14
        then greatest((select max(place) from fresh_lanes), (select max(place) from waiting_lanes), 0)
        else greatest((select count(*) from seen_fresh), (select count(*) from seen_due)) end as looked_at,
        exists (select from measured where bytes_before > 0 and bytes_before + bytes > $6) as is_full
) s
left join taken t on true;

-- reclaim
-- Takes rows whose worker let the lease run out. With $10 never past an earlier row of the same key.
--   $1 namespace  $2 max attempts  $3 topics  $4 tenant  $5 limit  $6 max bytes  $7 worker  $8 token  $9 lease in ms
--   $10 whether keys are ordered  $11 whether dead heads block by default  $12 topics with the other policy
--   $13 rows that are left out; they hold back what follows them in their keys
with leased as materialized (
    select "topic" as topic, "ordering_key" as ordering_key, "seq" as seq, "locked_until" >= now() as live
    from "posthaste"."outbox"
    where $10 and "namespace" = $1 and "status" = 'processing' and "ordering_key" is not null
),
left_out as materialized (
    select "topic" as topic, "ordering_key" as ordering_key, "seq" as seq
    from "posthaste"."outbox"
    where $10 and "id" = any ($13::text[]::uuid[])
),
fresh as materialized (
    -- Rows that were given back before their followers were lost.
    select "topic" as topic, "ordering_key" as ordering_key, min("seq") as first_seq
    from "posthaste"."outbox"
    where $10 and "namespace" = $1 and "status" = 'pending' and "next_attempt_at" <= "created_at"
        and "seq" < (select max(seq) from leased where not live)
        and ("topic", "ordering_key") in (select topic, ordering_key from leased where not live)
    group by "topic", "ordering_key"
),
candidates as materialized (
    select "id" as id, "seq" as seq, "topic" as topic, case when $10 then "ordering_key" end as ordering_key,
        octet_length("payload") as bytes
    from "posthaste"."outbox" o
    where "namespace" = $1 and "status" = 'processing' and "locked_until" < now()
        and "attempts" < $2 and "id" not in (select unnest($13::text[]::uuid[]))
        and ($3::text[] is null or "topic" = any ($3))
        and ($4::text is null or "tenant" = $4)
        and (not $10 or "ordering_key" is null or (
            ("topic", "ordering_key") not in (select topic, ordering_key from leased where live)
            and not exists (
                select from fresh e
                where e.topic = o."topic" and e.ordering_key = o."ordering_key" and e.first_seq < o."seq"
            )
            and not exists (
                select from left_out e
                where e.topic = o."topic" and e.ordering_key = o."ordering_key" and e.seq < o."seq"
            )
            and not exists (
                select from "posthaste"."outbox" e
                where e."namespace" = $1 and e."topic" = o."topic" and e."ordering_key" = o."ordering_key"
                    and e."status" = 'pending' and e."next_attempt_at" > e."created_at" and e."seq" < o."seq"
            )
            and not exists (
                select from "posthaste"."outbox" e
                where e."namespace" = $1 and e."topic" = o."topic" and e."ordering_key" = o."ordering_key"
                    and e."status" = 'dead' and e."seq" < o."seq" and (e."topic" = any ($12::text[])) <> $11
            )
        ))
    order by "seq"
    limit $5
),
locked as materialized (
    select o."id" as id
    from "posthaste"."outbox" o
    where o."id" = any (array(select id from candidates)) and o."status" = 'processing' and o."locked_until" < now()
    for update skip locked
),
picked as (
    select id
    from (
        select id, ordering_key, bytes, ours,
            -- A row that somebody else has locked holds back what follows it in its key.
            bool_and(ours) over (partition by topic, ordering_key order by seq) as unbroken,
            sum(bytes) over (order by seq) - bytes as bytes_before
        from (select *, id in (select id from locked) as ours from candidates) looked_up
    ) measured
    where ours and (unbroken or ordering_key is null) and (bytes_before = 0 or bytes_before + bytes <= $6)
)
update "posthaste"."outbox" o
set "status" = 'processing', "attempts" = o."attempts" + 1,
    "locked_by" = $7::text::uuid,
    "lease_token" = $8::text::uuid, "locked_until" = now() + $9::bigint * interval '1 millisecond', "updated_at" = now()
where o."id" = any (array(select id from picked))
returning o."seq"::bigint as seq, o."id"::text as id, null::text as event_id, o."namespace"::text as namespace, o."topic"::text as topic, o."ordering_key"::text as ordering_key, o."tenant"::text as tenant, o."dedupe_key"::text as dedupe_key, o."event_type"::text as event_type, o."source"::text as source, o."aggregate_type"::text as aggregate_type, o."aggregate_id"::text as aggregate_id, o."content_type"::text as content_type, o."payload" as payload, o."headers"::text as headers, o."content_hash" as content_hash, o."attempts"::bigint as attempts,
    null::bigint::bigint as max_attempts, null::bigint::bigint as version,
    case when o."created_at" > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when o."created_at" < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else o."created_at" end as created_at;

-- extend
-- Prolongs leases that are still held under the token. Where a table only says since when a row is held, that is now.
--   $1 ids  $2 token  $3 lease in ms
update "posthaste"."outbox" o
set "locked_until" = now() + $3::bigint * interval '1 millisecond'
    , "updated_at" = now()
where o."id" = any ($1::text[]::uuid[]) and o."lease_token"::text = $2
    and o."status" = 'processing'
returning o."id"::text as id;

-- lock_held
-- Locks rows that are still held under their token, but for those that another transaction has locked.
--   $1 ids  $2 tokens
select o."id"::text as id
from "posthaste"."outbox" o
join unnest($1::text[]::uuid[], $2::text[]) as s (id, token)
    on o."id" = s.id and o."lease_token"::text = s.token
where o."status" = 'processing'
order by o."id"
for update of o skip locked;

-- find_held
-- Finds rows that are still held under their token, locked or not.
--   $1 ids  $2 tokens  $3 versions
select o."id"::text as id
from "posthaste"."outbox" o
join unnest($1::text[]::uuid[], $2::text[], $3::bigint[]) as s (id, token, version)
    on o."id" = s.id and o."lease_token"::text = s.token
where o."status" = 'processing';

-- lock_claims
-- Serialises the ordered claims of one outbox until the end of the transaction. Another claim may take its time; whoever has
-- locked the table as a whole is not waited for as long.
select set_config('lock_timeout', '1s', true) from pg_advisory_xact_lock(hashtextextended($1, 0));

-- trial_claim
-- Claims rows that are locked: to try verdicts on them, or to find out whose claim is refused. It is rolled back.
--   $1 ids  $2 proof of the claim  $3 lease in ms  $4 worker, where the table says who has a row
update "posthaste"."outbox" o
set "status" = 'processing', "attempts" = coalesce(o."attempts", 0) + 1,
    "lease_token" = $2::text::uuid
    , "locked_by" = $4::text::uuid
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
    from "posthaste"."outbox" o
    where o."status" = 'dead'
        and o."updated_at" < now() - $1::bigint * interval '1 millisecond'
        and ($3::text is null or o."namespace"::text = $3)
    order by o."updated_at"
    limit $2
    for update skip locked
)
delete from "posthaste"."outbox" o
where o."id" = any (array(select id from chosen))
returning o."id"::text as id;

-- topic_gauges
-- The topics of the oldest pending messages, those with the most first.
--   $1 namespace  $2 how many messages are looked at
with pending as (
    (
        select "topic" as topic, "created_at" as created_at
        from "posthaste"."outbox"
        where "namespace" = $1 and "status" = 'pending' and "next_attempt_at" <= "created_at"
        order by "seq"
        limit $2
    )
    union all
    (
        select "topic" as topic, "created_at" as created_at
        from "posthaste"."outbox"
        where "namespace" = $1 and "status" = 'pending' and "next_attempt_at" > "created_at"
        order by "next_attempt_at"
        limit $2
    )
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
select "id" as id
    from "posthaste"."outbox"
    where "namespace" = $1 and "status" = 'processing' and "locked_until" < now() and "attempts" >= $2
        and ($3::text[] is null or "topic" = any ($3))
        and ($4::text is null or "tenant" = $4)
    union all
    select "id"
    from "posthaste"."outbox"
    where "namespace" = $1 and "status" = 'pending' and "next_attempt_at" > "created_at" and "attempts" >= $2
        and ($3::text[] is null or "topic" = any ($3))
        and ($4::text is null or "tenant" = $4)
    union all
    -- Given back by a second worker after the first one crashed: fresh, but tried.
    select "id"
    from "posthaste"."outbox"
    where "namespace" = $1 and "status" = 'pending' and "next_attempt_at" <= "created_at" and "attempts" > 0
        and "attempts" >= $2
        and ($3::text[] is null or "topic" = any ($3))
        and ($4::text is null or "tenant" = $4)
),
locked as materialized (
    select o."id" as id
    from "posthaste"."outbox" o
    where o."id" = any (array(select id from exhausted))
        and o."attempts" >= $2
        and (o."status" in ('pending') or (o."status" = 'processing' and ( o."locked_until" < now())))
    for update skip locked
),
swept as (
    update "posthaste"."outbox" o
    set "status" = 'dead'
        , "attempts" = o."attempts" + case when o."status" = 'processing' then $6 else 0 end
        , "lease_token" = null
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
from "posthaste"."outbox" o
where o."namespace"::text = $1
    and o."status" = 'processing'
    and o."locked_until" < now()
    and ($3::text[] is null or o."topic"::text = any ($3))
    and ($4::text is null or o."tenant"::text = $4);

-- enqueue
-- Writes rows in the caller's transaction. A dedupe key that is taken, or an id that exists, writes nothing.
with input as (
    select * from unnest(
        $1::text[]::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[],
        $10::text[], $11::text[], $12::bytea[], $13::text[], $14::bytea[], $15::timestamptz[]
    ) with ordinality as t (
        id, namespace, topic, ordering_key, tenant, dedupe_key, event_type, source, aggregate_type,
        aggregate_id, content_type, payload, headers, content_hash, not_before, place
    )
),
held as (
    -- "do update" rather than "do nothing": it waits for a concurrent holder and returns the winner's id.
    insert into "posthaste"."outbox_dedupe" as d (namespace, topic, dedupe_key, message_id, expires_at)
    select namespace, topic, dedupe_key, id, now() + $16::bigint * interval '1 millisecond'
    from input
    where dedupe_key is not null
    order by namespace, topic, dedupe_key -- one order for all producers, so that they cannot deadlock
    on conflict (namespace, topic, dedupe_key) do update set (message_id, expires_at) = (
        select case when free.yes then excluded.message_id else d.message_id end,
               case when free.yes then excluded.expires_at else d.expires_at end
        from (select d.expires_at <= now()
            -- A holder that this statement's snapshot does not know is a concurrent one, whose row it does not see either.
            and exists (select from "posthaste"."outbox_dedupe" k where k.namespace = d.namespace and k.topic = d.topic
                and k.dedupe_key = d.dedupe_key and k.message_id = d.message_id)
            and not exists (select from "posthaste"."outbox" o where o."id" = d.message_id) as yes) free
    )
    returning d.namespace, d.topic, d.dedupe_key, d.message_id,
        -- The same event again, after its row was purged, finds its own key held since an earlier time.
        d.expires_at = now() + $16::bigint * interval '1 millisecond' as held_now
),
written as (
    insert into "posthaste"."outbox" (
        "id", "namespace", "topic", "ordering_key", "tenant", "dedupe_key", "event_type", "source",
        "aggregate_type", "aggregate_id", "content_type", "payload", "headers", "content_hash",
        "next_attempt_at"
    )
    select
        i.id, i.namespace, i.topic, i.ordering_key, i.tenant, i.dedupe_key, i.event_type, i.source,
        i.aggregate_type, i.aggregate_id, i.content_type, i.payload, i.headers::jsonb, i.content_hash,
        greatest(now(), i.not_before)
    from input i
    left join held h using (namespace, topic, dedupe_key)
    where i.dedupe_key is null or (h.message_id = i.id and h.held_now)
    order by i.place
    on conflict ("id") do nothing
    returning "id" as id
)
select i.place, coalesce(h.message_id, i.id)::text as id, w.id is not null as is_new
from input i
left join held h using (namespace, topic, dedupe_key)
left join written w on w.id = i.id
order by i.place;

-- append
-- Writes rows without dedupe keys in the caller's transaction, in the order of the call. What comes back was not written:
-- its id exists.
--
-- Arrays side by side in a select list: in "from" each would be copied into a table of its own first. One element stands for the
-- same in all rows, none for nulls only.
with written as (
    insert into "posthaste"."outbox" (
        "id", "namespace", "topic", "ordering_key", "tenant", "event_type", "source", "aggregate_type",
        "aggregate_id", "content_type", "payload", "headers", "content_hash", "next_attempt_at"
    )
    select
        id::uuid,
        coalesce(namespace, (select ($2::text[])[1] where cardinality($2::text[]) = 1)),
        coalesce(topic, (select ($3::text[])[1] where cardinality($3::text[]) = 1)),
        coalesce(ordering_key, (select ($4::text[])[1] where cardinality($4::text[]) = 1)),
        coalesce(tenant, (select ($5::text[])[1] where cardinality($5::text[]) = 1)),
        coalesce(event_type, (select ($6::text[])[1] where cardinality($6::text[]) = 1)),
        coalesce(source, (select ($7::text[])[1] where cardinality($7::text[]) = 1)),
        coalesce(aggregate_type, (select ($8::text[])[1] where cardinality($8::text[]) = 1)),
        coalesce(aggregate_id, (select ($9::text[])[1] where cardinality($9::text[]) = 1)),
        coalesce(content_type, (select ($10::text[])[1] where cardinality($10::text[]) = 1)),
        payload,
        case coalesce(headers, (select ($12::text[])[1] where cardinality($12::text[]) = 1))
            when '{}' then '{}'
            else coalesce(headers, (select ($12::text[])[1] where cardinality($12::text[]) = 1))::jsonb
        end,
        content_hash, greatest(now(), not_before)
    from (
        select
            unnest($1::text[]) as id, unnest($2::text[]) as namespace, unnest($3::text[]) as topic,
            unnest($4::text[]) as ordering_key, unnest($5::text[]) as tenant, unnest($6::text[]) as event_type,
            unnest($7::text[]) as source, unnest($8::text[]) as aggregate_type, unnest($9::text[]) as aggregate_id,
            unnest($10::text[]) as content_type, unnest($11::bytea[]) as payload, unnest($12::text[]) as headers,
            unnest($13::bytea[]) as content_hash, unnest($14::timestamptz[]) as not_before
    ) i
    on conflict ("id") do nothing
    returning "id" as id
)
select i.place, i.id, false as is_new
from unnest($1::text[]) with ordinality as i (id, place)
-- Mostly all are written, and then none is looked for.
where (select count(*) from written) < cardinality($1::text[]) and i.id::uuid not in (select id from written)
order by i.place;

-- append_uniform
-- Writes rows of one kind without dedupe keys in the caller's transaction, in the order of the call: from namespace to content type
-- all have the same, and none has a time of its own. What comes back was not written: its id exists.
--
-- Arrays side by side in a select list, and as few as can be: each is asked for each row. One element stands for the same in all
-- rows, none for nulls only.
with written as (
    insert into "posthaste"."outbox" (
        "id", "namespace", "topic", "ordering_key", "tenant", "event_type", "source", "aggregate_type",
        "aggregate_id", "content_type", "payload", "headers", "content_hash", "next_attempt_at"
    )
    select
        id, $2::text, $3::text,
        coalesce(ordering_key, (select ($9::text[])[1] where cardinality($9::text[]) = 1)),
        $4::text, $5::text, $6::text, $7::text,
        coalesce(aggregate_id, (select ($10::text[])[1] where cardinality($10::text[]) = 1)),
        $8::text, payload,
        case coalesce(headers, (select ($12::text[])[1] where cardinality($12::text[]) = 1))
            when '{}' then '{}'
            else coalesce(headers, (select ($12::text[])[1] where cardinality($12::text[]) = 1))::jsonb
        end,
        content_hash, now()
    from (
        select
            unnest($1::uuid[]) as id, unnest($9::text[]) as ordering_key, unnest($10::text[]) as aggregate_id,
            unnest($11::bytea[]) as payload, unnest($12::text[]) as headers, unnest($13::bytea[]) as content_hash
    ) i
    on conflict ("id") do nothing
    returning "id" as id
)
select i.place, i.id::text as id, false as is_new
from unnest($1::uuid[]) with ordinality as i (id, place)
-- Mostly all are written, and then none is looked for.
where (select count(*) from written) < cardinality($1::uuid[]) and i.id not in (select id from written)
order by i.place;

-- append_one
-- Writes one row without a dedupe key in the caller's transaction. Nothing comes back if its id exists.
insert into "posthaste"."outbox" (
    "id", "namespace", "topic", "ordering_key", "tenant", "event_type", "source", "aggregate_type",
    "aggregate_id", "content_type", "payload", "headers", "content_hash", "next_attempt_at"
)
values (
    $1::text::uuid, $2::text, $3::text, $4::text, $5::text, $6::text, $7::text, $8::text,
    $9::text, $10::text, $11::bytea, $12::text::jsonb, $13::bytea, greatest(now(), $14::timestamptz)
)
on conflict ("id") do nothing
returning 1::bigint as place, "id"::text as id, true as is_new;

-- purge_dedupe
-- Frees dedupe keys whose window is over and whose row is gone.
with chosen as materialized (
    select namespace, topic, dedupe_key
    from "posthaste"."outbox_dedupe" d
    where expires_at <= now() and not exists (select from "posthaste"."outbox" o where o."id" = d.message_id)
    order by expires_at
    limit $1
    for update skip locked
)
delete from "posthaste"."outbox_dedupe" where (namespace, topic, dedupe_key) in (select * from chosen);

-- purge_inbox
-- Forgets what one consumer handled longer ago than the broker can deliver again.
with chosen as materialized (
    select consumer, key
    from "posthaste"."inbox"
    where consumer = $1 and handled_at < now() - $2::bigint * interval '1 millisecond'
    order by handled_at
    limit $3
    for update skip locked
)
delete from "posthaste"."inbox" where (consumer, key) in (select * from chosen);

-- record_inbox
-- Records a delivery in the handler's transaction; no row is written if it was recorded before.
insert into "posthaste"."inbox" (consumer, key) values ($1, $2) on conflict (consumer, key) do nothing;

-- heartbeat
-- Says that a relay is there. Its first heartbeat is its start. Relays that died without leaving are forgotten after a
-- while.
with forgotten as (
    delete from "posthaste"."relays" where worker <> $1 and seen_at < now() - $10::bigint * interval '1 millisecond'
)
insert into "posthaste"."relays" as r (
    worker, namespace, publisher, host, pid, version, started_at, seen_at, circuit, circuit_since, circuit_reason
) values ($1, $2, $3, $4, $5, $6, now(), now(), $7, now() - $8::bigint * interval '1 millisecond', $9)
on conflict (worker) do update set
    namespace = excluded.namespace, publisher = excluded.publisher, host = excluded.host, pid = excluded.pid,
    version = excluded.version, seen_at = excluded.seen_at, circuit = excluded.circuit,
    circuit_since = excluded.circuit_since, circuit_reason = excluded.circuit_reason;

-- deregister
-- Takes a relay off the list and ends its leadership.
with resigned as (delete from "posthaste"."leaders" where worker = $1)
delete from "posthaste"."relays" where worker = $1;

-- leader
-- Who leads, other than the one who asks; a look before the leap, so that relays that stand by do not write.
select worker, (extract(epoch from until - now()) * 1000)::bigint as left_ms
from "posthaste"."leaders"
where namespace = $1 and worker <> $2 and until > now();

-- elect_leader
-- Takes the lead, or keeps it, unless another relay's lease is not over. No row comes back if one was quicker.
insert into "posthaste"."leaders" as l (namespace, worker, since, until)
values ($1, $2, now(), now() + $3::bigint * interval '1 millisecond')
on conflict (namespace) do update set
    worker = excluded.worker, until = excluded.until,
    since = case when l.worker = excluded.worker then l.since else excluded.since end
where l.worker = excluded.worker or l.until <= now()
returning worker;

-- relays
-- The relays of a namespace, oldest first.
select
    r.worker, r.namespace, r.publisher, r.host, r.pid, r.version, r.started_at, r.seen_at,
    greatest(extract(epoch from now() - r.seen_at), 0)::float8 as silent_seconds,
    r.circuit, r.circuit_since, r.circuit_reason,
    exists (
        select from "posthaste"."leaders" l where l.namespace = r.namespace and l.worker = r.worker and l.until > now()
    ) as leads
from "posthaste"."relays" r
where r.namespace = $1
order by r.started_at, r.worker;

-- lock_dead
-- Locks a dead row, so that its letter is not written twice.
--   $1 id
select o."id"::text as id
from "posthaste"."outbox" o
where o."id" = $1::text::uuid and o."status" = 'dead'
for update;

-- restore
-- Makes a row that was inserted in this transaction the dead one that it was.
--   $1 its id  $2 the id that it had  $3 attempts  $4 error  $5 time of the first insert  $6 dedupe key  $7 hash
update "posthaste"."outbox" o
set "status" = 'dead'
    , "attempts" = $3
    , "last_error" = $4
    , "created_at" = $5::timestamptz
    , "dedupe_key" = $6::text::text
    , "content_hash" = $7::text::bytea
where o."id" = $1::text::uuid
    and $2::text is not null and $3::integer is not null and $4::text is not null and $5::timestamptz is not null
    and ($6::text is null or true) and ($7::text is null or true);

-- find_lock_holders
-- Says who has locked rows: a row that is locked has the number of the transaction, which holds a lock on that number.
--   $1 ids
select o."id"::text as id, 'session ' || l.pid || coalesce(' (' || nullif(a.application_name, '') || ')', '') as holder
from "posthaste"."outbox" o
join pg_locks l on l.locktype = 'transactionid' and l.transactionid = o.xmax and l.granted and l.mode = 'ExclusiveLock'
left join pg_stat_activity a on a.pid = l.pid
where o."id" = any ($1::text[]::uuid[]);

