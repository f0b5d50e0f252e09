-- append_one
-- Appends one row in the caller's transaction. As long as the log has one shard, its sequence is known here; else the row comes
-- without a number, and the table's trigger gives it its shard and its number.
insert into "posthaste"."log" (
    shard, seq, id, topic, ordering_key, tenant, event_type, source, aggregate_type, aggregate_id, content_type, payload, headers
) values (
    0,
    case pg_sequence_last_value('"posthaste".log_shape'::regclass) when 1 then nextval('"posthaste".log_shard_0_seq'::regclass) end,
    $1::text::uuid, $2::text, $3::text, $4::text, $5::text, $6::text, $7::text, $8::text, $9::text, $10::bytea,
    convert_to($11::text, 'UTF8')
);

-- append_uniform
-- Appends rows of one kind in the caller's transaction, in the order of the call: from topic to content type all have the same.
-- Shards as in "append".
--
-- Arrays side by side in a select list, and as few as can be: each is asked for each row. One element stands for the same in all
-- rows, none for nulls only.
insert into "posthaste"."log" (
    segment, shard, seq, id, topic, ordering_key, tenant, event_type, source, aggregate_type, aggregate_id, content_type, payload,
    headers
)
select i.segment, i.shard,
    case i.shape
        when 1 then nextval('"posthaste".log_shard_0_seq'::regclass)
        else nextval(('"posthaste".log_shard_' || i.shard || '_seq')::regclass)
    end,
    i.id, $2::text, i.ordering_key, $3::text, $4::text, $5::text, $6::text,
    coalesce(i.aggregate_id, (select ($9::text[])[1] where cardinality($9::text[]) = 1)),
    $7::text, i.payload,
    convert_to(coalesce(i.headers, (select ($11::text[])[1] where cardinality($11::text[]) = 1)), 'UTF8')
from (
    select i.segment, i.shape, i.id, i.aggregate_id, i.payload, i.headers,
        coalesce(i.ordering_key, (select ($8::text[])[1] where cardinality($8::text[]) = 1)) as ordering_key,
        case i.shape
            when 1 then 0
            else (i.shape >> 16)::integer + (('x' || left(md5(coalesce(i.ordering_key,
                (select ($8::text[])[1] where cardinality($8::text[]) = 1), i.id::text)), 8))::bit(32)::integer
                & 2147483647) % (i.shape & 65535)::integer
        end as shard
    from (
        select
            (select pg_sequence_last_value('"posthaste".log_segment'::regclass)) as segment,
            (select pg_sequence_last_value('"posthaste".log_shape'::regclass)) as shape,
            unnest($1::uuid[]) as id, unnest($8::text[]) as ordering_key, unnest($9::text[]) as aggregate_id,
            unnest($10::bytea[]) as payload, unnest($11::text[]) as headers
    ) i
) i;

-- append
-- Appends rows in the caller's transaction, in the order of the call, which is that of the arrays. The shard follows from the key,
-- or from the id where there is none; sequences say how many shards there are, whatever snapshot the transaction has. As long as
-- there is one, which the shape 1 says, no key is hashed and no sequence is looked up by its name.
--
-- Arrays side by side in a select list: in "from" each would be copied into a table of its own first. One element stands for the
-- same in all rows, none for nulls only.
insert into "posthaste"."log" (
    segment, shard, seq, id, topic, ordering_key, tenant, event_type, source, aggregate_type, aggregate_id, content_type, payload,
    headers
)
select i.segment, i.shard,
    case i.shape
        when 1 then nextval('"posthaste".log_shard_0_seq'::regclass)
        else nextval(('"posthaste".log_shard_' || i.shard || '_seq')::regclass)
    end,
    i.id::uuid,
    coalesce(i.topic, (select ($2::text[])[1] where cardinality($2::text[]) = 1)),
    i.ordering_key,
    coalesce(i.tenant, (select ($4::text[])[1] where cardinality($4::text[]) = 1)),
    coalesce(i.event_type, (select ($5::text[])[1] where cardinality($5::text[]) = 1)),
    coalesce(i.source, (select ($6::text[])[1] where cardinality($6::text[]) = 1)),
    coalesce(i.aggregate_type, (select ($7::text[])[1] where cardinality($7::text[]) = 1)),
    coalesce(i.aggregate_id, (select ($8::text[])[1] where cardinality($8::text[]) = 1)),
    coalesce(i.content_type, (select ($9::text[])[1] where cardinality($9::text[]) = 1)),
    i.payload,
    convert_to(coalesce(i.headers, (select ($11::text[])[1] where cardinality($11::text[]) = 1)), 'UTF8')
from (
    select i.segment, i.shape, i.id, i.topic,
        coalesce(i.ordering_key, (select ($3::text[])[1] where cardinality($3::text[]) = 1)) as ordering_key,
        i.tenant, i.event_type, i.source, i.aggregate_type, i.aggregate_id, i.content_type, i.payload, i.headers,
        case i.shape
            when 1 then 0
            else (i.shape >> 16)::integer + (('x' || left(md5(coalesce(i.ordering_key,
                (select ($3::text[])[1] where cardinality($3::text[]) = 1), i.id)), 8))::bit(32)::integer
                & 2147483647) % (i.shape & 65535)::integer
        end as shard
    from (
        select
            (select pg_sequence_last_value('"posthaste".log_segment'::regclass)) as segment,
            (select pg_sequence_last_value('"posthaste".log_shape'::regclass)) as shape,
            unnest($1::text[]) as id, unnest($2::text[]) as topic, unnest($3::text[]) as ordering_key,
            unnest($4::text[]) as tenant, unnest($5::text[]) as event_type, unnest($6::text[]) as source,
            unnest($7::text[]) as aggregate_type, unnest($8::text[]) as aggregate_id, unnest($9::text[]) as content_type,
            unnest($10::bytea[]) as payload, unnest($11::text[]) as headers
    ) i
) i;

-- append_or_hold
-- Appends rows in the caller's transaction, where some have dedupe keys or wait for a time of their own. A key that is taken
-- writes nothing. What waits goes to where failures wait, with a number of its shard, which is its place in its lane.
with input as (
    select * from unnest(
        $1::text[]::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[],
        $10::bytea[], $11::text[], $12::text[], $13::timestamptz[]
    ) with ordinality as t (
        id, topic, ordering_key, tenant, event_type, source, aggregate_type, aggregate_id, content_type, payload, headers,
        dedupe_key, not_before, place
    )
),
held as (
    -- "do update" rather than "do nothing": it waits for a concurrent holder and returns the winner's id.
    insert into "posthaste"."outbox_dedupe" as d (namespace, topic, dedupe_key, message_id, expires_at)
    select 'default', topic, dedupe_key, id, now() + $14::bigint * interval '1 millisecond'
    from input
    where dedupe_key is not null
    order by topic, dedupe_key -- one order for all producers, so that they cannot deadlock
    on conflict (namespace, topic, dedupe_key) do update set (message_id, expires_at) = (
        select case when free.yes then excluded.message_id else d.message_id end,
               case when free.yes then excluded.expires_at
                   -- One that this transaction has taken before must not look as if it were taken now.
                   when d.expires_at = excluded.expires_at then d.expires_at - interval '1 microsecond'
                   else d.expires_at end
        from (select d.expires_at <= now()
            -- A holder that this statement's snapshot does not know is a concurrent one.
            and exists (select from "posthaste"."outbox_dedupe" k where k.namespace = d.namespace and k.topic = d.topic
                and k.dedupe_key = d.dedupe_key and k.message_id = d.message_id)
            -- What waits still has its key; a delivered row is not looked for, since nothing finds it by its id.
            and not exists (select from "posthaste"."log_failed" f where f."event_id" = d.message_id) as yes) free
    )
    returning d.topic, d.dedupe_key, d.message_id,
        -- The same event again finds its own key held since an earlier time.
        d.expires_at = now() + $14::bigint * interval '1 millisecond' as held_now
),
chosen as materialized (
    select n.*, case n.shape
            when 1 then nextval('"posthaste".log_shard_0_seq'::regclass)
            else nextval(('"posthaste".log_shard_' || n.shard || '_seq')::regclass)
        end as seq
    from (
        select i.*, shape, (shape >> 16)::integer
            + (('x' || left(md5(coalesce(i.ordering_key, i.id::text)), 8))::bit(32)::integer & 2147483647)
                % (shape & 65535)::integer as shard
        from pg_sequence_last_value('"posthaste".log_shape'::regclass) as shape, input i
        left join held h using (topic, dedupe_key)
        where i.dedupe_key is null or (h.message_id = i.id and h.held_now)
        order by i.place
        offset 0 -- the numbers are taken after the rows are in order
    ) n
),
appended as (
    insert into "posthaste"."log" (
        shard, seq, id, topic, ordering_key, tenant, event_type, source, aggregate_type, aggregate_id, content_type, payload,
        headers
    )
    select shard, seq, id, topic, ordering_key, tenant, event_type, source, aggregate_type, aggregate_id, content_type, payload,
        convert_to(headers, 'UTF8')
    from chosen
    where not_before is null or not_before <= now()
),
waiting as (
    insert into "posthaste"."log_failed" (
        shard, log_id, event_id, topic, ordering_key, tenant, event_type, source, aggregate_type, aggregate_id, content_type,
        payload, headers, next_attempt_at
    )
    select shard, seq, id, topic, ordering_key, tenant, event_type, source, aggregate_type, aggregate_id, content_type,
        payload, convert_to(headers, 'UTF8'), not_before
    from chosen
    where not_before > now()
)
select i.place, coalesce(h.message_id, i.id)::text as id,
    i.dedupe_key is null or (h.message_id = i.id and h.held_now) as is_new
from input i
left join held h using (topic, dedupe_key)
order by i.place;

-- lock
-- Asks to be the one who moves this cursor, for as long as this connection lives.
--   $1 the cursor's table  $2 the shard, where there are shards
select pg_try_advisory_lock(hashtextextended(
    'posthaste:log:' || $1::text::regclass::oid::text || ':' || $2::integer::text, 0
)) as locked;

-- end_own
-- Ends an earlier connection of this reader, which the server has not missed yet, and with it its lock.
--   $1 the cursor's table  $2 the process of that connection  $3 the shard, where there are shards
select pg_terminate_backend(l.pid) as ended
from pg_locks l
where l.locktype = 'advisory' and l.granted and l.pid = $2 and l.objsubid = 1
    and ((l.classid::bigint << 32) | l.objid::bigint)
        = hashtextextended('posthaste:log:' || $1::text::regclass::oid::text || ':' || $3::integer::text, 0);

-- server
-- Which run of the server this is, since what a reader remembers is worth nothing after a crash: rows that it saw may be
-- gone, and their ids given out again. Counters are reset after a crash, also where the postmaster went on.
select pg_postmaster_start_time()::text || ' ' || coalesce((select stats_reset::text from pg_stat_bgwriter), '') as server;

-- storage
-- In which files the log is. Others mean that it was truncated, rewritten or made anew, so that what was read of it says
-- nothing about the rows that are there now.
--   $1 the table
with recursive family (relation) as (
    select $1::text::regclass::oid
    union
    select i.inhrelid from pg_inherits i join family f on i.inhparent = f.relation
)
select -- Segments come and go.
    ''::text as files,
    -- A transaction that begins to write from now on has at least this number.
    (txid_snapshot_xmin(txid_current_snapshot()) % 4294967296)::text as horizon
from family;

-- sequence
-- What the proof needs to know of the log's table and of the sequences that give its ids: those that it owns and those that
-- its default asks. One row without a sequence if there is none, and no last value where none was given out since it was
-- set, or where it may not be read.
--   $1 the table  $2 the id's column  $3 the sequence of the shard, where there are shards
with log as (
    select c.oid, c.relkind::text as kind, a.attnum
    from pg_class c
    left join pg_attribute a on a.attrelid = c.oid and a.attname = $2
    where c.oid = $1::text::regclass
),
sequences as (
    select d.objid as oid
    from log
    join pg_depend d on d.refclassid = 'pg_class'::regclass and d.refobjid = log.oid and d.refobjsubid = log.attnum
        and d.classid = 'pg_class'::regclass and d.deptype in ('a', 'i')
    union
    select d.refobjid
    from log
    join pg_attrdef a on a.adrelid = log.oid and a.adnum = log.attnum
    join pg_depend d on d.classid = 'pg_attrdef'::regclass and d.objid = a.oid and d.refclassid = 'pg_class'::regclass
)
select log.kind, s.seqrelid::regclass::text as sequence, s.seqcache as cache, s.seqincrement as increment,
    case when has_sequence_privilege(s.seqrelid, 'select, usage') then pg_sequence_last_value(s.seqrelid) end as last_value
from log
left join (sequences q join pg_sequence s on s.seqrelid = q.oid) on true
where s.seqrelid = $3::text::regclass
order by 2;

-- cursor
-- How far the log is settled: the newest row says it, or the row of the shard.
select s.position, s.epoch from "posthaste"."log_shards" s where s.shard = $1;

-- move_cursor
-- Writes down how far the log is settled: in the row of the shard, or as a new row, which is the newest also when the clock was
-- set back.
update "posthaste"."log_shards" set position = $1, updated_at = now() where shard = $2;

-- read
-- Reads rows of the log in one snapshot, and then looks up who may still commit earlier ones.
--   $1, $2 first and last of the ids to look at  $3 limit  $4 max bytes  $5 retries after which a row is given up  $6 the table
--   $7 the shard and $8 the first segment, where there are shards; $6 is its sequence then
--
-- The locks are looked up while the statement runs, so after its snapshot was taken. That order is the proof: whoever took
-- an id below one that is seen here had its lock before the snapshot, so it is among the holders or has ended. An insert
-- has the lock of the table before it takes its id; `nextval` as a statement of its own has that of the sequence, and keeps
-- it until its transaction ends.
with found as materialized (
    select o."seq"::bigint as id, o."id"::text as event_id,
        o."ordering_key"::text as ordering_key, o."tenant"::text as tenant, o."event_type"::text as event_type,
        o."source"::text as source, o."aggregate_type"::text as aggregate_type, o."aggregate_id"::text as aggregate_id,
        o."topic"::text as topic, o."content_type"::text as content_type, o."payload" as payload,
        o."headers" as headers, case when o."created_at" > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when o."created_at" < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else o."created_at" end as created_at,
        o."topic"::text as lane_type,
        o."ordering_key"::text as lane_key
    from unnest($1::bigint[], $2::bigint[]) as r (first_id, last_id)
    cross join lateral (
        select * from "posthaste"."log" l where l."seq" between r.first_id and r.last_id
            and l."shard" = $7::integer and l.segment >= $8 order by l."seq" limit $3
    ) o
    order by 1
    limit $3
),
kept as materialized (
    -- Row by row, by index: a plan that was made while nearly nothing had failed would hold each row against all that failed since.
    select found.id
    from found
    cross join lateral (
        select from "posthaste"."log_failed" f where f."shard" = $7::integer and f."log_id" = found.id limit 1
    ) f
),
lanes as materialized (
    select f.lane_type, f.lane_key, f.live , min(f.place) as place
    from (
        select f."topic"::text
                as lane_type,
            f."ordering_key"::text
                as lane_key,
            f."died_at" is null as live
            -- A message that waits for its time holds back only what stands behind it.
            , f."log_id" as place
        from "posthaste"."log_failed" f
        -- Of all shards: those before it in its lane may be in one of an earlier generation, whose numbers are lower.
        where $5::bigint is not null
    ) f
    join (select distinct lane_type, lane_key from found) l using (lane_type, lane_key)
    group by f.lane_type, f.lane_key, f.live
),
holders as materialized (
    select array_agg(virtualtransaction) as names, array_agg(pid is null) as prepared
    from pg_locks
    where locktype = 'relation' and mode = 'RowExclusiveLock' and granted
        and database = (select oid from pg_database where datname = current_database())
        -- Whoever takes a number has its sequence locked from before that until the transaction ends.
        and relation = $6::text::regclass
),
measured as (
    select *, row_number() over by_id as place, count(*) over () as seen,
        sum(bytes) over by_id - bytes as bytes_before
    from (select *, coalesce(octet_length(payload), 0) as bytes from found) f
    window by_id as (order by id)
)
select m.*,
    m.id in (select id from kept) as kept,
    exists (
        select from lanes l
        where l.live and l.lane_type = m.lane_type and l.lane_key = m.lane_key and l.place < m.id
    ) as held,
    exists (
        select from lanes l
        where not l.live and l.lane_type = m.lane_type and l.lane_key = m.lane_key and l.place < m.id
    ) as held_by_dead,
    case when coalesce(m.place, 1) = 1 then h.names end as holders,
    case when coalesce(m.place, 1) = 1 then h.prepared end as holders_prepared,
    current_setting('posthaste.reader', true) as reader
from holders h
left join measured m on m.bytes_before = 0 or m.bytes_before + m.bytes <= $4::bigint
order by m.id;

-- read_tail
-- Reads on beyond the highest id that was read. The reader decodes the columns by their places.
--   $1 the highest id  $2 limit  $3 the reader's mark $4 the shard  $5 the first segment
--   $6 whether a row that was given up may block its lane
--
-- Enough while no id below is open and no row waits. What the table of failures says of a row, as of the same snapshot, stands in
-- the last column, if the connection is the reader's own. Who may still commit ids that this passes over is looked up after it: see
-- holders.sql.
select o."seq"::bigint as id,
    o."id" as event_id,
    o."ordering_key"::text as ordering_key, o."tenant"::text as tenant, o."event_type"::text as event_type,
    o."source"::text as source, o."aggregate_type"::text as aggregate_type, o."aggregate_id"::text as aggregate_id,
    o."topic"::text as topic, o."content_type"::text as content_type, o."payload" as payload,
    o."headers" as headers, case when o."created_at" > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when o."created_at" < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else o."created_at" end as created_at,
    -- 1: the connection is another reader's.
    case (select case
        when current_setting('posthaste.reader', true) is distinct from $3::text then 1
        when exists (select from "posthaste"."log_failed") then 2
        else 0
    end)
    when 1 then 1
    when 2 then
        -- The sum of 2, it is there itself, and of 4, one before it in its lane waits there, or else 8, one was given up that may
        -- block it. Each is asked for only if there is such a row at all, which mostly is not so: dead letters hold nothing back.
        case when o."seq" <= (
                select f."log_id" from "posthaste"."log_failed" f where f."shard" = $4
                order by f."shard" desc, f."log_id" desc limit 1
            ) and exists (
                select from "posthaste"."log_failed" f where f."shard" = $4 and f."log_id" = o."seq"
            ) then 2 else 0 end
        -- The first of its lane by index, whatever the planner expects: "exists" is mostly a look at each row where lanes are few.
        + case
            when o."ordering_key" is not null and (
                select f."log_id" from "posthaste"."log_failed" f
                where f."died_at" is null and f."ordering_key" is not null
                order by f."topic", f."ordering_key", f."log_id" limit 1
            ) is not null and (
                -- Of all shards: those before it in its lane may be in one of an earlier generation, whose numbers are lower.
                select f."log_id" from "posthaste"."log_failed" f
                where f."topic" = o."topic" and f."ordering_key" = o."ordering_key"
                    and f."died_at" is null and f."ordering_key" is not null
                order by f."topic", f."ordering_key", f."log_id" limit 1
            ) < o."seq" then 4
            when $6::boolean and o."ordering_key" is not null and (
                -- Not "is not null": an index of all that are dead may look cheaper than that of the lane.
                select f."log_id" from "posthaste"."log_failed" f
                where f."topic" = o."topic" and f."ordering_key" = o."ordering_key"
                    and coalesce(f."died_at", 'infinity') <> 'infinity'
                order by f."topic", f."ordering_key", f."log_id" limit 1
            ) < o."seq" then 8 else 0 end
    else 0 end as beside
from "posthaste"."log" o
where o."seq" > $1::bigint and o."shard" = $4 and o.segment >= $5
order by o."seq"
limit $2;

-- holders
-- Who may still commit rows with ids that a read passed over: whoever took such an id had a lock before that read's snapshot,
-- and keeps it until its transaction ends. So one that is not here has ended, and the next read finds what it committed.
-- To be run after the read.
--   $1 the table, or the sequence of a shard
select virtualtransaction as name, pid is null as prepared
from pg_locks
where locktype = 'relation' and mode = 'RowExclusiveLock' and granted
    and database = (select oid from pg_database where datname = current_database())
    and relation in (
        with recursive family (relation) as (
            select $1::text::regclass::oid
            union
            select i.inhrelid from pg_inherits i join family f on i.inhparent = f.relation
        )
        select f.relation from family f
        union all
        select d.objid
        from pg_depend d
        where d.refclassid = 'pg_class'::regclass and d.refobjid = $1::text::regclass
            and d.classid = 'pg_class'::regclass and d.deptype in ('a', 'i')
        union all
        select d.refobjid
        from pg_attrdef a
        join pg_depend d on d.classid = 'pg_attrdef'::regclass and d.objid = a.oid
            and d.refclassid = 'pg_class'::regclass
        where a.adrelid = $1::text::regclass
    );

-- probe
-- Looks at ids that were closed: a row that is there now was given its id outside of the transaction that inserted it.
--   $1, $2 first and last of the ids  $3 limit  $4 the shard and $5 the first segment, where there are shards
select o."seq"::bigint as id,
    o."topic"::text
        as lane_type,
    o."ordering_key"::text as lane_key
from unnest($1::bigint[], $2::bigint[]) as r (first_id, last_id)
cross join lateral (
    select * from "posthaste"."log" l where l."seq" between r.first_id and r.last_id
        and l."shard" = $4::integer and l.segment >= $5 order by l."seq" limit $3
) o
order by 1
limit $3;

-- retry
-- Takes failed rows that are due: of a lane only the first, or the run of those that were never tried and only wait behind
-- others.
--   $1 retries after which a row is given up  $2 whether lanes are ordered  $3 rows in flight  $4, $5 lanes in flight
--   $6 whether a row that was given up may block its lane  $7 limit
--   $8 the shard, $9 the first segment, $10 the highest number that was read of it, $11, $12 first and last of the numbers up to
--   there whose rows were not read, $13 whether one that was given up blocks its lane by default and $14 topics with the other
--   policy, $15, $16, $17 lanes of which rows that were read are not settled, each with the first of these, where there are shards
with live as (
    select f."id"::bigint as id,
        f."log_id" as place, f."topic"::text
            as lane_type,
        f."ordering_key"::text as lane_key,
        f."attempts" > 0 as tried,
        case when f."next_attempt_at" > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when f."next_attempt_at" < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else f."next_attempt_at" end <= now() as due,
        f."attempts" >= $1::bigint or f."died_at" is not null as dead
    from "posthaste"."log_failed" f
    where ($6 or (f."attempts" < $1::bigint
        and f."died_at" is null))
        and f."shard" = $8::integer
),
placed as (
    select id, place, lane_type, lane_key, dead, due,
        row_number() over lane = 1 or bool_and(not tried) over lane as its_turn,
        bool_and(due) over lane as lane_due,
        coalesce(bool_or(dead) over (
            partition by lane_type, lane_key order by place rows between unbounded preceding and 1 preceding
        ), false) as behind_dead
    from live
    window lane as (partition by lane_type, lane_key, dead order by place)
),
-- What an earlier reader left open, what was committed after later rows were read, and what is not settled of those that were.
unread as materialized (
    select o.lane_type, o.lane_key, min(o.place) as place
    from unnest($11::bigint[], $12::bigint[]) as r (first_id, last_id)
    -- Range by range, by the index.
    cross join lateral (
        select o."topic"::text as lane_type, o."ordering_key"::text as lane_key, o."seq" as place
        from "posthaste"."log" o
        where o."shard" = $8::integer and o.segment >= $9 and o."seq" between r.first_id and r.last_id
        offset 0
    ) o
    where o.lane_key is not null
    group by 1, 2
    union all
    select * from unnest($15::text[], $16::text[], $17::bigint[])
),
behind_unread as materialized (
    select p.id
    from placed p
    join unread u on u.lane_type = p.lane_type and u.lane_key = p.lane_key and u.place < p.place
),
-- What may go as far as that is known without a look at other rows, in order: those looks are then for as many as are taken.
ready as (
    select *
    from placed p
    where not dead and (id in (select unnest($3::bigint[]))) is not true
        and case when lane_key is null or not $2 then due
            else its_turn and lane_due and ((lane_type, lane_key) in (
                select b.lane_type, b.lane_key from unnest($4::text[], $5::text[]) as b (lane_type, lane_key)
            )) is not true and p.id not in (select b.id from behind_unread b) end
    order by place
    offset 0
),
able as (
    select id, place, lane_type, lane_key, lane_key is not null and (behind_dead or $6 and (
            select e."log_id" from "posthaste"."log_failed" e
            where e."topic" = p.lane_type and e."ordering_key" = p.lane_key
                and e."log_id" < $8::bigint << 44 and e."shard" <> $8::integer
                and coalesce(e."died_at", 'infinity') <> 'infinity'
            order by e."topic", e."ordering_key", e."log_id" limit 1
        ) is not null) as behind_dead
    from ready p
    where lane_key is null or not $2 or (
        -- Those before it in its lane may be in a shard of an earlier generation, whose numbers are lower than all of
        -- this one's. By index, whatever the planner expects.
        select e."log_id" from "posthaste"."log_failed" e
        where e."topic" = p.lane_type and e."ordering_key" = p.lane_key
            and e."log_id" < $8::bigint << 44 and e."shard" <> $8::integer
            and e."died_at" is null and e."attempts" < $1::bigint
            and e."ordering_key" is not null
        order by e."topic", e."ordering_key", e."log_id" limit 1
    ) is null and not exists (
        -- What is enqueued with a time of its own may stand behind rows that were not read yet. Which lanes those
        -- beyond the highest number are of would take reading them: it waits until that is done.
        select from "posthaste"."log" o where o."shard" = $8::integer and o.segment >= $9 and o."seq" > $10::bigint and o."seq" < p.place
    )
),
picked as (
    select *
    from able
    -- Else those that wait for an operator would leave no room for others. Where the topic is no column, the reader sorts them out.
    where not (behind_dead and (lane_type = any ($14::text[])) <> $13::boolean)
    order by place
    limit $7
)
select p.id, p.behind_dead, f."log_id"::bigint as log_id, f."event_id"::text as event_id,
    f."ordering_key"::text as ordering_key,
    f."tenant"::text as tenant, f."event_type"::text as event_type, f."source"::text as source,
    f."aggregate_type"::text as aggregate_type, f."aggregate_id"::text as aggregate_id,
    f."topic"::text as topic, f."content_type"::text as content_type, f."payload" as payload,
    f."headers" as headers,
    case when f."created_at" > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when f."created_at" < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else f."created_at" end as created_at,
    f."attempts"::bigint as attempts, p.lane_type, p.lane_key
from picked p
join "posthaste"."log_failed" f on f."id" = p.id
order by p.place;

-- suspected
-- Of failed rows that may have killed a reader, those that are still to be delivered, with their lanes.
--   $1 ids  $2 retries after which a row is given up  $3 the shard, where there are shards
select f."id"::bigint as id,
    f."topic"::text
        as lane_type,
    f."ordering_key"::text as lane_key
from "posthaste"."log_failed" f
where f."id" = any ($1::bigint[]) and f."shard" = $3::integer
    and f."died_at" is null and $2::bigint is not null;

-- fail
-- Writes rows of the log to the table of failures, in the log's order; one that is there already is left as it is.
--   $1 ids  $2 retries so far  $3 errors  $4 waits in ms  $5 whether they are given up
--   $6 the shard and $7 the first segment, where there are shards
insert into "posthaste"."log_failed" (
    "event_id", "payload", "attempts", "next_attempt_at"
    , "event_type"
    , "source"
    , "aggregate_type"
    , "aggregate_id"
    , "ordering_key"
    , "tenant"
    , "headers"
    , "shard"
    , "topic"
    , "content_type"
    , "died_at"
    , "log_id"
    , "last_error"
    , "created_at"
)
select
    o."id", o."payload", n.retries,
    now() + n.delay_ms * interval '1 millisecond'
    , o."event_type"
    , o."source"
    , o."aggregate_type"
    , o."aggregate_id"
    , o."ordering_key"
    , o."tenant"
    , o."headers"
    , o."shard"
    , o."topic"
    , o."content_type"
    , case when n.dead then now() end
    , o."seq"
    , n.error
    , o."created_at"
from unnest($1::bigint[], $2::bigint[], $3::text[], $4::bigint[], $5::boolean[]) as n (id, retries, error, delay_ms, dead)
join "posthaste"."log" o on o."seq" = n.id and o."shard" = $6::integer and o.segment >= $7
-- Triggers may ask for locks, which are not waited for for long.
where (select set_config('lock_timeout', '1s', true)) is not null and not exists (
    select from "posthaste"."log_failed" f
    where f."shard" = o."shard" and f."log_id" = o."seq"
)
order by n.id
returning "id"::bigint as id;

-- retried
-- A retry failed: it is counted unless the broker is unavailable, and waits again; one that is given up stays at the
-- threshold.
--   $1 ids  $2 whether they are given up  $3 attempts to count  $4 waits in ms  $5 errors
--   $6 retries after which a row is given up
update "posthaste"."log_failed" f
set "attempts" =
        f."attempts" + s.attempts,
        "died_at" = case when s.dead and $6::bigint is not null then now() end,
    "next_attempt_at" = case when s.delay_ms is null then f."next_attempt_at"
        else now() + s.delay_ms * interval '1 millisecond' end
    , "last_error" = s.error
from unnest($1::bigint[], $2::bool[], $3::bigint[], $4::bigint[], $5::text[]) as s (id, dead, attempts, delay_ms, error)
-- Locks of other transactions are not waited for: a condition without columns comes before the first row.
where (select set_config('lock_timeout', '100ms', true)) is not null and f."id" = s.id;

-- delete_delivered
-- Retries that were delivered. Locks of other transactions are not waited for: a condition without columns comes before the
-- first row.
--   $1 ids
delete from "posthaste"."log_failed"
where (select set_config('lock_timeout', '100ms', true)) is not null and "id" = any ($1::bigint[]);

-- sweep
-- Gives up failed rows that have used all their retries under a limit that is lower than the table's,
-- but for those that another transaction has locked.
--   $1 retries (or attempts, where the time of death is kept) that were allowed  $2 retries after which a row is given up
--   $3 the shard, where there are shards
update "posthaste"."log_failed" f
set "died_at" = now()
where f."id" = any (array(
    select l."id"
    from "posthaste"."log_failed" l
    where l."attempts" >= $1 and l."shard" = $3::integer
        and l."died_at" is null and $2::bigint is not null
    for update skip locked
))
returning f."id"::bigint as id;

-- newest
-- The newest row of the log, for a trial.
--   $1 the shard and $2 the first segment, where there are shards
select o."seq"::bigint as id from "posthaste"."log" o where o."shard" = $1::integer and o.segment >= $2 order by o."seq" desc limit 1;

-- lengths
-- Columns that are shorter than what is copied into them.
--   $1 the log's table  $2 the table of failures  $3 columns of the log  $4 columns of the table of failures
select c.failed_column, t.attname as log_column,
    case when f.atttypmod > 4 then f.atttypmod - 4 end as failed_length,
    case when t.atttypid in ('varchar'::regtype, 'bpchar'::regtype) and t.atttypmod > 4 then t.atttypmod - 4 end as log_length
from unnest($3::text[], $4::text[]) as c (log_column, failed_column)
join pg_attribute f on f.attrelid = $2::text::regclass and f.attname = c.failed_column
left join pg_attribute t on t.attrelid = $1::text::regclass and t.attname = c.log_column
where f.atttypid in ('varchar'::regtype, 'bpchar'::regtype) and f.atttypmod > 4
order by 1;

-- stats
-- Counts what is not delivered. Of the rows that were not handed out so many are counted, and of more it is told how many numbers
-- they have: a backlog of millions must cost no more than one of thousands every few seconds.
--   $1, $2 first and last of the ids that were not handed out  $3 retries after which a row is given up
--   $4 failed rows that are handed out  $5 how many are counted, all of them without a number; where there are shards, each range
--   is of one, and each number tells its own,
--   $6 the first segment
with ranges as (
    select r.first_id, r.last_id from unnest($1::bigint[], $2::bigint[]) as r (first_id, last_id)
),
counted as (
    select count(*) as n
    from (
        select
        from ranges r
        cross join lateral (
            select
            from "posthaste"."log" o
            where o."seq" between r.first_id and r.last_id
                and o."shard" = (r.first_id >> 44)::integer and o.segment >= $6
            order by o."seq"
            -- Not the number itself: of one that it knows the planner may think that it is all there is, and sort that.
            limit (select $5::bigint + 1)
        ) o
        limit (select $5::bigint + 1)
    ) o
),
-- The first of a range is the oldest of it.
unread as (
    select min(head.created_at) as oldest, sum(tail.id - head.id + 1)::bigint as numbers
    from ranges r
    cross join lateral (
        select o."seq" as id, case when o."created_at" > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when o."created_at" < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else o."created_at" end as created_at
        from "posthaste"."log" o
        where o."seq" between r.first_id and r.last_id
            and o."shard" = (r.first_id >> 44)::integer and o.segment >= $6
        order by o."seq"
        limit 1
    ) head
    cross join lateral (
        select o."seq" as id
        from "posthaste"."log" o
        where o."seq" between r.first_id and r.last_id
            and o."shard" = (r.first_id >> 44)::integer and o.segment >= $6
        order by o."seq" desc
        limit 1
    ) tail
),
failed as (
    select
        count(*) filter (where not f.dead) as live,
        count(*) filter (where not f.dead and f.next_attempt_at > now()) as waiting,
        count(*) filter (where f.dead) as dead,
        min(f.created_at) filter (where not f.dead) as oldest
    from (
        select case when f."next_attempt_at" > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when f."next_attempt_at" < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else f."next_attempt_at" end as next_attempt_at, case when f."created_at" > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when f."created_at" < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else f."created_at" end as created_at,
            f."died_at" is not null
                as dead
        from "posthaste"."log_failed" f
        where f."id" <> all ($4::bigint[]) and $3::bigint is not null
    ) f
)
select case when counted.n > $5::bigint then greatest(counted.n, unread.numbers) else counted.n end + failed.live as pending,
    failed.waiting, failed.dead,
    coalesce(extract(epoch from now() - least(unread.oldest, failed.oldest)), 0)::float8 as oldest_seconds
from counted, unread, failed;

-- list_log
-- Rows of the log as an operator sees them.
--   $1, $2 first and last of the ids; where there are shards, each range is of one, and each number tells its own
--   $3 limit  $4 events, all if null
select o."seq"::bigint as id, o."id"::text as event_id,
    o."ordering_key"::text as ordering_key, o."tenant"::text as tenant, o."event_type"::text as event_type,
    o."source"::text as source, o."aggregate_type"::text as aggregate_type, o."aggregate_id"::text as aggregate_id,
    o."topic"::text as topic, o."content_type"::text as content_type, o."payload" as payload,
    o."headers" as headers, case when o."created_at" > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when o."created_at" < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else o."created_at" end as created_at,
    -- Of one that was discarded only the row is left, which does not say so.
    exists (select from "posthaste".log_discarded d where d.shard = o."shard" and d.seq = o."seq") as discarded
from unnest($1::bigint[], $2::bigint[]) as r (first_id, last_id)
-- Each range by the index, in its order, and no further than to the limit.
cross join lateral (
    select * from "posthaste"."log" l where l."seq" between r.first_id and r.last_id
        and l."shard" = (r.first_id >> 44)::integer
        and ($4::uuid[] is null or l."id" = any ($4))
    order by l."seq"
    limit $3
) o
order by 1
limit $3;

-- list_failed
-- Rows of the table of failures as an operator sees them.
--   $1 beginning after this id  $2 events; all rows if null  $3 rows beside these  $4 limit
select f."id"::bigint as id, f."log_id"::bigint as log_id, f."event_id"::text as event_id,
    f."ordering_key"::text as ordering_key,
    f."tenant"::text as tenant, f."event_type"::text as event_type, f."source"::text as source,
    f."aggregate_type"::text as aggregate_type, f."aggregate_id"::text as aggregate_id,
    f."topic"::text as topic, f."content_type"::text as content_type, f."payload" as payload,
    f."headers" as headers,
    case when f."created_at" > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when f."created_at" < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else f."created_at" end as created_at,
    f."attempts"::bigint as attempts, f."last_error"::text as last_error,
    case when f."next_attempt_at" > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when f."next_attempt_at" < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else f."next_attempt_at" end as next_attempt_at,
    f."died_at" is not null as dead,
    case when f."died_at" > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when f."died_at" < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else f."died_at" end as died_at
    , exists (
        select from "posthaste"."log_failed" e where e."event_id" = f."event_id" and e."id" <> f."id"
    ) as shares_event
from "posthaste"."log_failed" f
where f."id" > $1
    and ($2::text[] is null or f."id" = any ($3::bigint[])
        or f."event_id" = any ($2::uuid[]))
order by f."id"
limit $4;

-- find_dead
-- Failed rows that were given up, by their primary keys, in their order. Of the log nothing is read.
--   $1 beginning after this id  $2 retries after which a row is given up, where no time says that it was
--   $3 events; all rows if null  $4 rows beside these  $5 limit
--   $6 topic, $7 ordering key and $8 tenant, all if null, where each has a column of its own
select f."id"::bigint as id
from "posthaste"."log_failed" f
where f."id" > $1
    and f."died_at" is not null and $2::bigint is not null
    and ($3::text[] is null or f."id" = any ($4::bigint[])
        or f."event_id" = any ($3::uuid[]))
    and ($6::text is null or f."topic" = $6) and ($7::text is null or f."ordering_key" = $7)
        and ($8::text is null or f."tenant" = $8)
order by f."id"
limit $5;

-- replay
-- Begins failed rows again. Guarded: one that is no longer given up is left alone.
--   $1 ids  $2 retries after which a row is given up, where no time says that it was
update "posthaste"."log_failed" f
set "attempts" = 0, "next_attempt_at" = now()
    , "died_at" = null
where f."id" = any ($1::bigint[])
    and f."died_at" is not null and $2::bigint is not null
returning f."id"::bigint as id;

-- discard
-- Removes failed rows for good. Guarded: one that is no longer given up is left alone.
--   $1 ids  $2 retries after which a row is given up, where no time says that it was
delete from "posthaste"."log_failed" f
where f."id" = any ($1::bigint[])
    and f."died_at" is not null and $2::bigint is not null
returning f."id"::bigint as id;

-- purge_dead
-- Removes what was given up long ago, but for what another transaction has locked.
--   $1 age in ms  $2 limit
delete from "posthaste"."log_failed"
where "id" = any (array(
    select f."id"
    from "posthaste"."log_failed" f
    where case when f."died_at" > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when f."died_at" < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else f."died_at" end < now() - $1::bigint * interval '1 millisecond'
    order by f."died_at"
    limit $2
    for update skip locked
))
returning "event_id"::text as id;

-- purgeable_dead
-- Counts what a purge of the dead would remove.
--   $1 age in ms
select count(*) as rows
from "posthaste"."log_failed" f
where case when f."died_at" > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when f."died_at" < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else f."died_at" end < now() - $1::bigint * interval '1 millisecond';

-- shards
-- The shards that there are.
select s.shard from "posthaste"."log_shards" s order by s.shard;

-- topic_gauges
-- The topics of the oldest rows that were not handed out and of the oldest failed ones, those with the most first. Of each shard as
-- many rows are looked at, by the index, whatever is in the log.
--   $1, $2 first and last of the ids that were not handed out; each range is of one shard, and each number tells its own
--   $3 how many rows are looked at in all, and how many failed ones  $4 failed rows that are handed out  $5 the first segment
with shares as (
    select r.first_id >> 44 as shard, array_agg(r.first_id order by r.first_id) as first_ids,
        array_agg(r.last_id order by r.first_id) as last_ids, greatest($3::bigint / count(*) over (), 1) as share
    from unnest($1::bigint[], $2::bigint[]) as r (first_id, last_id)
    group by 1
),
pending as (
    select n.topic, n.created_at
    from shares s
    cross join lateral (
        select o.topic, o.created_at
        from unnest(s.first_ids, s.last_ids) as r (first_id, last_id)
        cross join lateral (
            select l."topic" as topic, l."created_at" as created_at
            from "posthaste"."log" l
            where l."shard" = s.shard::integer and l."seq" between r.first_id and r.last_id and l.segment >= $5
            order by l."seq"
            limit s.share
        ) o
        limit s.share
    ) n
    union all
    select f.topic, f.created_at
    from (
        select f."id" as id, f."topic" as topic, f."created_at" as created_at,
            f."died_at" is null as live
        from "posthaste"."log_failed" f
        order by 1
        limit $3
    ) f
    where f.live and f.id <> all ($4::bigint[])
)
select topic, count(*) as pending,
    case when isfinite(min(created_at)) then extract(epoch from now() - min(created_at)) else 0 end::float8 as oldest_seconds
from pending
group by 1
order by count(*) desc, 1;

-- restore
-- Brings a dead letter back that was kept elsewhere, unless that was done. It takes a number of its shard: its old place is long passed.
--   $1 event  $2 topic  $3 key  $4 tenant  $5 type  $6 source  $7, $8 aggregate  $9 content type  $10 payload  $11 headers
--   $12 attempts  $13 error  $14 time of the first insert
insert into "posthaste"."log_failed" (
    shard, log_id, event_id, topic, ordering_key, tenant, event_type, source, aggregate_type, aggregate_id, content_type,
    payload, headers, attempts, last_error, created_at, died_at
)
select s.shard, nextval(('"posthaste".log_shard_' || s.shard || '_seq')::regclass), $1::uuid, $2::text, $3::text, $4::text, $5::text,
    $6::text, $7::text, $8::text, $9::text, $10::bytea, convert_to($11::text, 'UTF8'), $12::integer, $13::text,
    $14::timestamptz, now()
from (
    select (shape >> 16)::integer + "posthaste".log_hash(coalesce($3::text, $1::uuid::text)) % (shape & 65535)::integer as shard
    from pg_sequence_last_value('"posthaste".log_shape'::regclass) as shape
) s
where not exists (select from "posthaste"."log_failed" where event_id = $1::uuid);

-- readers/usable
-- Whether there is a table for the state of readers, which this user may write; and by what name it knows this log.
--   $1 the cursor's table  $2 the log's table  $3 the table of readers  $4 its schema
select n.nspname || '.' || c.relname as log, $2::text::regclass::oid::text || ' ' || c.oid::text as tables,
    r.oid is not null as exists,
    coalesce(
        has_schema_privilege(r.relnamespace, 'usage') and has_table_privilege(r.oid, 'select')
            and has_table_privilege(r.oid, 'update'),
        false
    ) as usable,
    exists (
        select from pg_attribute a where a.attrelid = r.oid and a.attname = 'handed_out' and not a.attisdropped
    ) as counts_crashes
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
left join (pg_class r join pg_namespace s on s.oid = r.relnamespace and s.nspname = $4) on r.relname = $3
where c.oid = $1::text::regclass;

-- readers/state
-- What the last reader of a log left, and the transaction that wrote it.
--   $1 the log
select null::text as tables, s.state, s.handed_out, s.position, s.xmin::text as written_by
from "posthaste"."log_shards" s
where s.shard = $2 and s.state <> '' and $1::text is not null;

-- readers/checkpoint
-- Writes down how far the log is settled, as a new row of the cursor if that moved, and what is not settled beyond it. One
-- statement, so that neither is there without the other. The new row is the newest also when the clock was set back.
--
-- Its commit does not wait for the disk, nor claims for it: what a crash of the server undoes of it is sent again, and what
-- commits later, such as the end of a segment, makes it durable.
--   $1 the position  $2 whether it moved  $3 the log  $4 its tables  $5 the state
--   $6 what may be handed out
--   $7 the shard and $8 the epoch of its seat, where there are shards: who has lost it writes nothing
with written as (
    -- The first number of the state is the highest that was read.
    update "posthaste"."log_shards"
    set position = $1::bigint, state = $5::text, hi = split_part($5::text, ';', 1)::bigint, handed_out = $6::text,
        updated_at = clock_timestamp()
    where shard = $7 and epoch = $8 and $2::boolean is not null and $3::text is not null and $4::text is not null
    returning set_config('synchronous_commit', 'off', true)
)
select count(*) as moved, count(*) as written from written;

-- lock_segments
-- One at a time looks after the segments.
select pg_try_advisory_lock(hashtextextended('posthaste:segments', '"posthaste".log'::regclass::oid::bigint));

-- ready_segments
-- Which of the segments ahead may be opened.
select "posthaste".log_ready_segments();

-- rotate_segment
-- Opens the next segment if the current one is old or full.
--   $1 the age in milliseconds  $2 the rows
select "posthaste".log_rotate($1::bigint * interval '1 ms', $2::bigint);

-- make_segments
-- Makes segments ahead.
--   $1 how many
select "posthaste".log_make_segments($1::integer);

-- settle_segments
-- Which of the closed segments are settled.
select "posthaste".log_settle_segments();

-- old_segments
-- The segments that may be dropped.
--   $1 how long they were settled, in milliseconds
select segment, row_count, is_attached, is_pending from "posthaste".log_old_segments($1::bigint * interval '1 ms');

-- dropped_segment
-- Takes note that a segment is gone.
--   $1 the segment
update "posthaste".log_segments set dropped_at = clock_timestamp() where segment = $1::bigint;

-- forget_discarded
-- Forgets which rows were discarded that are gone with their segments.
select "posthaste".log_forget_discarded();

-- count_old_segments
-- How many rows the segments have that may be dropped.
--   $1 how long they were settled, in milliseconds
select coalesce(sum(row_count), 0)::bigint from "posthaste".log_old_segments($1::bigint * interval '1 ms');

-- first_segment
-- The first segment that may have rows which are not settled. Where there are many, plans are made for those that are read: a
-- plan for all of them takes seconds to make, and locks each of them whenever it is used.
select coalesce(min(s.segment) filter (where s.settled_at is null), 0) as first,
    set_config('plan_cache_mode', case when count(*) > 16 then 'force_custom_plan' else 'auto' end, $1) as plans
from "posthaste".log_segments s
where s.dropped_at is null;

-- not_owner
-- The owner of the log, if this role has not its rights: nobody else may make, attach, detach and drop its segments.
select pg_get_userbyid(c.relowner)::text as owner
from pg_class c
where c.oid = '"posthaste".log'::regclass and not pg_has_role(c.relowner, 'usage');

-- move_plan
-- What of the queue would be moved to the log, and what stands in the way.
select
    count(*) filter (where o.status = 'pending' and o.attempts = 0 and o.next_attempt_at <= now()) as pending,
    count(*) filter (where o.status = 'pending' and (o.attempts > 0 or o.next_attempt_at > now())) as waiting,
    count(*) filter (where o.status = 'dead') as dead,
    count(*) filter (where o.status = 'processing') as processing,
    count(*) filter (where o.status = 'processing' and o.locked_until > now()) as leased,
    (select count(*) from "posthaste".relays r
        where r.namespace = 'default' and r.seen_at > now() - interval '15 s') as relays,
    exists (select from pg_trigger
        where tgrelid = '"posthaste".outbox'::regclass and tgname = 'log_refuse_claim') as is_fenced,
    exists (select from pg_trigger
        where tgrelid = '"posthaste".outbox'::regclass and tgname = 'log_redirect') as is_redirected
from "posthaste".outbox o
where o.namespace = 'default' and o.status in ('pending', 'processing', 'dead');

-- move_progress
-- How far a move of the queue has come.
select
    exists (select from pg_trigger
        where tgrelid = '"posthaste".outbox'::regclass and tgname = 'log_refuse_claim') as is_fenced,
    exists (select from pg_trigger
        where tgrelid = '"posthaste".outbox'::regclass and tgname = 'log_redirect') as is_redirected;

-- unfit
-- Messages of the queue that the log does not take, the oldest first, and how many there are.
--   $1 how many to name
select o.id::text as id, f.field, f.bytes, f.allowed, count(*) over () as unfit
from "posthaste".outbox o
cross join lateral (
    select s.field, s.bytes, s.allowed
    from (values
        (1, 'topic', octet_length(o.topic), 512), (2, 'ordering_key', octet_length(o.ordering_key), 2048)
    ) s(place, field, bytes, allowed)
    where s.bytes > s.allowed
    order by s.place
    limit 1
) f
where o.namespace = 'default' and o.status in ('pending', 'processing', 'dead')
    and (octet_length(o.topic) > 512 or octet_length(o.ordering_key) > 2048)
order by o.seq
limit $1;

-- lock_move
-- Lets one move at a time be at work; what it has locked would else be in the way of the other's.
select pg_try_advisory_xact_lock(hashtextextended('posthaste:move:' || 'posthaste', 0));

-- fence_queue
-- Keeps relays of the queue from claiming.
select "posthaste".log_fence_queue();

-- unfence_queue
-- Lets relays of the queue claim again.
select "posthaste".log_unfence_queue();

-- move_batch
-- Moves the oldest rows of the queue to the log.
--   $1 how many fresh ones
select "posthaste".log_move_batch($1::integer);

-- redirect_queue
-- Moves what is left with no writer in between, and sends to the log what is written to the queue from then on.
select "posthaste".log_redirect_queue();

-- make_shards
-- Makes the shards of a new generation, if there are to be more.
--   $1 how many
select "posthaste".log_make_shards($1::integer);

-- use_shards
-- Sends rows to the newest generation of shards.
select "posthaste".log_use_shards();

-- newest_generation
-- The newest generation of shards, whether rows go there yet or not.
select g.generation, g.shards from "posthaste".log_generations g order by g.generation desc limit 1;

-- connections
-- The connections that this role may still have: the least that the server, the database and the role leave it. Those that are kept
-- for superusers are not counted.
with sessions as materialized (
    select datid, usesysid from pg_stat_activity where datid is not null and usesysid is not null
),
bounds (bound, bound_limit, in_use) as (
    select 'max_connections', current_setting('max_connections')::bigint
            - (select sum(setting::bigint) from pg_settings where name in ('superuser_reserved_connections', 'reserved_connections')),
        (select count(*) from sessions)
    union all
    select 'the connection limit of the role ' || r.rolname, r.rolconnlimit,
        (select count(*) from sessions s where s.usesysid = r.oid)
    from pg_roles r
    where r.rolname = current_user and r.rolconnlimit >= 0 and not r.rolsuper
    union all
    select 'the connection limit of the database ' || d.datname, d.datconnlimit,
        (select count(*) from sessions s where s.datid = d.oid)
    from pg_database d
    where d.datname = current_database() and d.datconnlimit >= 0
)
select b.bound::text, b.bound_limit::bigint, b.in_use::bigint, (b.bound_limit - b.in_use)::bigint as free
from bounds b
order by free
limit 1;

-- writers
-- Transactions that have written to the log and not ended, prepared ones included.
--   $1 the schema, quoted
select distinct on (l.virtualtransaction) l.virtualtransaction as name, case
        when l.pid is not null then format('process %s (%s, %s%s)', l.pid,
            coalesce(nullif(a.application_name, ''), a.usename, 'unknown'), coalesce(a.state, 'state not shown to this role'),
            ', for ' || round(extract(epoch from clock_timestamp() - a.xact_start))::text || ' s')
        when p.gid is null then format('the prepared transaction with the number %s',
            coalesce(x.transactionid::text, l.virtualtransaction))
        else format('the prepared transaction %L', p.gid)
    end as writer
from pg_locks l
join pg_class c on c.oid = l.relation
left join pg_stat_activity a on a.pid = l.pid
-- Until the server is started anew it has the name under which it was prepared, so that only a lock tells its number.
left join pg_locks x on l.pid is null and x.locktype = 'transactionid' and x.mode = 'ExclusiveLock' and x.pid is null
    and x.virtualtransaction = l.virtualtransaction
left join pg_prepared_xacts p on p.transaction = x.transactionid
where l.locktype = 'relation' and l.mode = 'RowExclusiveLock' and l.granted
    and l.database = (select oid from pg_database where datname = current_database())
    and c.relnamespace = $1::text::regnamespace
    and (c.relname = 'log' or c.relkind = 'S' and c.relname ~ '^log_shard_[0-9]+_seq$');

