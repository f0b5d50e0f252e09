-- enqueue
-- Appends rows to the log in the caller's transaction. Everything comes as text and becomes what its column is; bytes come
-- as `bytea` writes them.
insert into "outbox" (
    "payload"
    , "event_id"
    , "aggregate_id"
    , "event_type"
    , "source"
    , "aggregate_type"
)
select i.payload::jsonb
    , i.event_id::text
    , i.ordering_key::text
    , i.event_type::text
    , i.source::text
    , i.aggregate_type::text
from unnest(
    $1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[],
    $10::text[], $11::text[], $12::text[]
) with ordinality as i (
    event_id, namespace, topic, ordering_key, tenant, event_type, source, aggregate_type, aggregate_id, content_type,
    payload, headers, place
)
order by i.place
returning "id"::bigint as place, "id"::bigint::text as id, true as is_new;

-- lock
-- Asks to be the one who moves this cursor, for as long as this connection lives.
--   $1 the cursor's table  $2 the shard, where there are shards
select pg_try_advisory_lock(hashtextextended(
    'posthaste:log:' || $1::text::regclass::oid::text , 0
)) as locked;

-- end_own
-- Ends an earlier connection of this reader, which the server has not missed yet, and with it its lock.
--   $1 the cursor's table  $2 the process of that connection  $3 the shard, where there are shards
select pg_terminate_backend(l.pid) as ended
from pg_locks l
where l.locktype = 'advisory' and l.granted and l.pid = $2 and l.objsubid = 1
    and ((l.classid::bigint << 32) | l.objid::bigint)
        = hashtextextended('posthaste:log:' || $1::text::regclass::oid::text , 0);

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
select coalesce(string_agg(pg_relation_filenode(relation)::text, ' ' order by relation), '') as files,
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
order by 2;

-- cursor
-- How far the log is settled: the newest row says it, or the row of the shard.
select c."last_processed_id"::bigint as position
from "outbox_cursor" c
order by c."created_at" desc, c."id" desc,
    c."last_processed_id" desc
limit 1;

-- move_cursor
-- Writes down how far the log is settled: in the row of the shard, or as a new row, which is the newest also when the clock was
-- set back.
insert into "outbox_cursor" ("last_processed_id" , "created_at")
select $1 , greatest(
        clock_timestamp(), (select max(case when c."created_at" > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when c."created_at" < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else c."created_at" end) + interval '1 microsecond' from "outbox_cursor" c)
    );

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
    select o."id"::bigint as id, o."event_id"::text as event_id,
        o."aggregate_id"::text as ordering_key, null::text as tenant, o."event_type"::text as event_type,
        o."source"::text as source, o."aggregate_type"::text as aggregate_type, o."aggregate_id"::text as aggregate_id,
        null::text as topic, null::text as content_type, convert_to(o."payload"::text, 'UTF8') as payload,
        null::bytea as headers, case when o."created_at" > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when o."created_at" < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else o."created_at" end as created_at,
        o."aggregate_type"::text as lane_type,
        o."aggregate_id"::text as lane_key
    from unnest($1::bigint[], $2::bigint[]) as r (first_id, last_id)
    cross join lateral (
        select * from "outbox" l where l."id" between r.first_id and r.last_id
             order by l."id" limit $3
    ) o
    order by 1
    limit $3
),
kept as materialized (
    select found.id
    from (
        select f."event_id"::text as event_id
        from "outbox_failed" f
    ) f
    join found using (event_id)
),
lanes as materialized (
    select f.lane_type, f.lane_key, f.live
    from (
        select f."aggregate_type"::text
                as lane_type,
            f."aggregate_id"::text
                as lane_key,
            f."retry_count" < $5::bigint as live
            -- A message that waits for its time holds back only what stands behind it.
        from "outbox_failed" f
        -- Of all shards: those before it in its lane may be in one of an earlier generation, whose numbers are lower.
    ) f
    join (select distinct lane_type, lane_key from found) l using (lane_type, lane_key)
    group by f.lane_type, f.lane_key, f.live
),
holders as materialized (
    select array_agg(virtualtransaction) as names, array_agg(pid is null) as prepared
    from pg_locks
    where locktype = 'relation' and mode = 'RowExclusiveLock' and granted
        and database = (select oid from pg_database where datname = current_database())
        and relation in (
            with recursive family (relation) as (
                select $6::text::regclass::oid
                union
                select i.inhrelid from pg_inherits i join family f on i.inhparent = f.relation
            )
            select f.relation from family f
            union all
            select d.objid
            from pg_depend d
            where d.refclassid = 'pg_class'::regclass and d.refobjid = $6::text::regclass
                and d.classid = 'pg_class'::regclass and d.deptype in ('a', 'i')
            union all
            select d.refobjid
            from pg_attrdef a
            join pg_depend d on d.classid = 'pg_attrdef'::regclass and d.objid = a.oid
                and d.refclassid = 'pg_class'::regclass
            where a.adrelid = $6::text::regclass
        )
),
measured as (
    select *, row_number() over by_id as place, count(*) over () as seen,
        sum(bytes) over by_id - bytes as bytes_before
    from (select *, coalesce(octet_length(payload), 0) as bytes from found) f
    window by_id as (order by id)
)
select m.*,
    m.id in (select id from kept) as kept,
    coalesce((m.lane_type, m.lane_key) in (select lane_type, lane_key from lanes where live), false) as held,
    coalesce((m.lane_type, m.lane_key) in (select lane_type, lane_key from lanes where not live), false) as held_by_dead,
    case when coalesce(m.place, 1) = 1 then h.names end as holders,
    case when coalesce(m.place, 1) = 1 then h.prepared end as holders_prepared,
    current_setting('posthaste.reader', true) as reader
from holders h
left join measured m on m.bytes_before = 0 or m.bytes_before + m.bytes <= $4::bigint
order by m.id;

-- read_tail
-- Reads on beyond the highest id that was read. The reader decodes the columns by their places.
--   $1 the highest id  $2 limit  $3 the reader's mark
--
-- Enough while no id below is open and no row waits. What the table of failures says of a row, as of the same snapshot, stands in
-- the last column, if the connection is the reader's own. Who may still commit ids that this passes over is looked up after it: see
-- holders.sql.
select o."id"::bigint as id,
    o."event_id"::text as event_id,
    o."aggregate_id"::text as ordering_key, null::text as tenant, o."event_type"::text as event_type,
    o."source"::text as source, o."aggregate_type"::text as aggregate_type, o."aggregate_id"::text as aggregate_id,
    null::text as topic, null::text as content_type, convert_to(o."payload"::text, 'UTF8') as payload,
    null::bytea as headers, case when o."created_at" > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when o."created_at" < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else o."created_at" end as created_at,
    -- 1: the connection is another reader's.
    case (select case
        when current_setting('posthaste.reader', true) is distinct from $3::text then 1
        when exists (select from "outbox_failed") then 2
        else 0
    end)
    when 1 then 1
    when 2 then
        -- 16: there may be something to be looked at.
        16
    else 0 end as beside
from "outbox" o
where o."id" > $1::bigint
order by o."id"
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
select o."id"::bigint as id,
    o."aggregate_type"::text
        as lane_type,
    o."aggregate_id"::text as lane_key
from unnest($1::bigint[], $2::bigint[]) as r (first_id, last_id)
cross join lateral (
    select * from "outbox" l where l."id" between r.first_id and r.last_id
         order by l."id" limit $3
) o
order by 1
limit $3;

-- missing
-- The ids up to the cursor that no row has: closed by an earlier reader, of whose memory only the cursor is left.
--   $1 the cursor  $2 how many ids below it are looked at  $3 limit
select g.after_id + 1 as first_id, g.before_id - 1 as last_id
from (
    select i.id as after_id, lead(i.id, 1, $1::bigint + 1) over (order by i.id) as before_id
    from (
        select greatest($1::bigint - $2::bigint, 0) as id
        union all
        select o."id"::bigint
        from "outbox" o
        where o."id" > greatest($1::bigint - $2::bigint, 0) and o."id" <= $1::bigint
    ) i
) g
where g.before_id > g.after_id + 1
order by 1 desc
limit $3;

-- unseen
-- Rows that came after the cursor had passed their ids: their transactions have higher numbers than the one that moved it
-- there. Whether an earlier reader found them nobody knows, so only what came lately is told.
--   $1 the cursor  $2 how many ids below it are looked at  $3 lately, in ms before the cursor last moved  $4 limit
--   $5 the transaction from which on everything is new, if there is one
--   $6 the transaction that wrote down that all ids up to $1 were read, if there is one: it counts as a move to there
with newest as (
    select c.xmin, c."last_processed_id"::bigint as position,
        case when c."created_at" > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when c."created_at" < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else c."created_at" end as moved_at,
        row_number() over (
            order by c."created_at" desc,
                c."id" desc, c."last_processed_id" desc
        ) as place
    from "outbox_cursor" c
    order by c."created_at" desc,
        c."id" desc, c."last_processed_id" desc
    limit 20000
),
moves as materialized (
    select position, age(xmin) as move_age, max(moved_at) over () as last_at,
        lag(moved_at) over (order by place) as next_at,
        min(position) over (order by place) as lowest_since
    from newest
),
passed as materialized (
    select position, move_age
    from moves
    -- One from before the cursor was set back says nothing.
    where position <= lowest_since
        and coalesce(next_at, 'infinity') >= last_at - $3::bigint * interval '1 millisecond'
    union all
    select $1::bigint, age($6::text::xid)
    where $6::text is not null
),
placed as (
    select id, is_row, row_age, max(move_age) over (order by id desc, is_row) as passed_age
    from (
        select position as id, false as is_row, null::integer as row_age, move_age from passed
        union all
        select o."id"::bigint, true, age(o.xmin), null
        from "outbox" o
        where o."id" > $1::bigint - $2::bigint and o."id" <= $1::bigint
            and age(o.xmin) between 0 and greatest((select max(move_age) from passed), age($5::text::xid))
    ) i
)
select id, count(*) over () as found
from placed
where is_row and (row_age < passed_age or row_age <= age($5::text::xid))
order by id desc
limit $4;

-- purge_cursor
-- Removes old rows of the cursor, never the newest.
--   $1 age in ms  $2 limit
delete from "outbox_cursor"
where ctid = any (array(
    select c.ctid
    from "outbox_cursor" c
    where case when c."created_at" > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when c."created_at" < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else c."created_at" end < now() - $1::bigint * interval '1 millisecond'
        and c.ctid <> (
            select n.ctid
            from "outbox_cursor" n
            order by n."created_at" desc, n."id" desc,
                n."last_processed_id" desc
            limit 1
        )
    order by c."created_at"
    limit $2
));

-- purge_log
-- Removes rows of the log that are settled and old; only where the relay is told to.
--   $1 age in ms  $2 limit  $3 the stored cursor
delete from "outbox"
where "id" = any (array(
    select o."id"
    from "outbox" o
    where o."id" <= $3::bigint and case when o."created_at" > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when o."created_at" < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else o."created_at" end < now() - $1::bigint * interval '1 millisecond'
    order by o."id"
    limit $2
));

-- purgeable
-- Counts what a purge would remove: old rows of the cursor but for the newest, and settled rows of the log, if the relay is
-- told to remove those.
--   $1 age of cursor rows in ms  $2 the stored cursor  $3 whether rows of the log are removed  $4 their age in ms
select (
    select count(*)
    from "outbox_cursor" c
    where case when c."created_at" > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when c."created_at" < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else c."created_at" end < now() - $1::bigint * interval '1 millisecond'
        and c.ctid <> (
            select n.ctid
            from "outbox_cursor" n
            order by n."created_at" desc, n."id" desc,
                n."last_processed_id" desc
            limit 1
        )
) as cursor_rows, (
    select count(*)
    from "outbox" o
    where $3::boolean
        and o."id" <= $2::bigint
        and case when o."created_at" > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when o."created_at" < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else o."created_at" end < now() - $4::bigint * interval '1 millisecond'
) as log_rows;

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
        f."id"::bigint as place,
        f."aggregate_type"::text
            as lane_type,
        f."aggregate_id"::text as lane_key,
        f."last_error"::text is not null as tried,
        case when f."next_retry_at" > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when f."next_retry_at" < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else f."next_retry_at" end <= now() as due,
        f."retry_count" >= $1::bigint  as dead
    from "outbox_failed" f
    where ($6 or (f."retry_count" < $1::bigint
        ))
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
-- What may go as far as that is known without a look at other rows, in order: those looks are then for as many as are taken.
ready as (
    select *
    from placed p
    where not dead and (id in (select unnest($3::bigint[]))) is not true
        and case when lane_key is null or not $2 then due
            else its_turn and lane_due and ((lane_type, lane_key) in (
                select b.lane_type, b.lane_key from unnest($4::text[], $5::text[]) as b (lane_type, lane_key)
            )) is not true  end
    order by place
    offset 0
),
able as (
    select id, place, lane_type, lane_key, lane_key is not null and (behind_dead ) as behind_dead
    from ready p
),
picked as (
    select *
    from able
    -- Else those that wait for an operator would leave no room for others. Where the topic is no column, the reader sorts them out.
    order by place
    limit $7
)
select p.id, p.behind_dead, null::bigint::bigint as log_id, f."event_id"::text as event_id,
    f."aggregate_id"::text as ordering_key,
    null::text as tenant, f."event_type"::text as event_type, f."source"::text as source,
    f."aggregate_type"::text as aggregate_type, f."aggregate_id"::text as aggregate_id,
    null::text as topic, null::text as content_type, convert_to(f."payload"::text, 'UTF8') as payload,
    null::bytea as headers,
    case when f."failed_at" > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when f."failed_at" < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else f."failed_at" end as created_at,
    f."retry_count"::bigint as attempts, p.lane_type, p.lane_key
from picked p
join "outbox_failed" f on f."id" = p.id
order by p.place;

-- suspected
-- Of failed rows that may have killed a reader, those that are still to be delivered, with their lanes.
--   $1 ids  $2 retries after which a row is given up  $3 the shard, where there are shards
select f."id"::bigint as id,
    f."aggregate_type"::text
        as lane_type,
    f."aggregate_id"::text as lane_key
from "outbox_failed" f
where f."id" = any ($1::bigint[])
    and f."retry_count" < $2::bigint;

-- fail
-- Writes rows of the log to the table of failures, in the log's order; one that is there already is left as it is.
--   $1 ids  $2 retries so far  $3 errors  $4 waits in ms  $5 whether they are given up
--   $6 the shard and $7 the first segment, where there are shards
insert into "outbox_failed" (
    "event_id", "payload", "retry_count", "next_retry_at"
    , "event_type"
    , "source"
    , "aggregate_type"
    , "aggregate_id"
    , "last_error"
    , "failed_at"
)
select
    o."event_id", o."payload", n.retries,
    now() + n.delay_ms * interval '1 millisecond'
    , o."event_type"
    , o."source"
    , o."aggregate_type"
    , o."aggregate_id"
    , n.error
    , now()
from unnest($1::bigint[], $2::bigint[], $3::text[], $4::bigint[], $5::boolean[]) as n (id, retries, error, delay_ms, dead)
join "outbox" o on o."id" = n.id
-- Triggers may ask for locks, which are not waited for for long.
where (select set_config('lock_timeout', '1s', true)) is not null and not exists (
    select from "outbox_failed" f
    where f."event_id"::text = o."event_id"::text
)
order by n.id
returning "id"::bigint as id;

-- retried
-- A retry failed: it is counted unless the broker is unavailable, and waits again; one that is given up stays at the
-- threshold.
--   $1 ids  $2 whether they are given up  $3 attempts to count  $4 waits in ms  $5 errors
--   $6 retries after which a row is given up
update "outbox_failed" f
set "retry_count" =
        greatest(f."retry_count" + s.attempts, case when s.dead then $6::bigint end),
    "next_retry_at" = case when s.delay_ms is null then f."next_retry_at"
        else now() + s.delay_ms * interval '1 millisecond' end
    , "last_error" = s.error
from unnest($1::bigint[], $2::bool[], $3::bigint[], $4::bigint[], $5::text[]) as s (id, dead, attempts, delay_ms, error)
-- Locks of other transactions are not waited for: a condition without columns comes before the first row.
where (select set_config('lock_timeout', '100ms', true)) is not null and f."id" = s.id;

-- delete_delivered
-- Retries that were delivered. Locks of other transactions are not waited for: a condition without columns comes before the
-- first row.
--   $1 ids
delete from "outbox_failed"
where (select set_config('lock_timeout', '100ms', true)) is not null and "id" = any ($1::bigint[]);

-- sweep
-- Gives up failed rows that have used all their retries under a limit that is lower than the table's,
-- but for those that another transaction has locked.
--   $1 retries (or attempts, where the time of death is kept) that were allowed  $2 retries after which a row is given up
--   $3 the shard, where there are shards
update "outbox_failed" f
set "retry_count" = $2
where f."id" = any (array(
    select l."id"
    from "outbox_failed" l
    where l."retry_count" >= $1
        and l."retry_count" < $2
    for update skip locked
))
returning f."id"::bigint as id;

-- newest
-- The newest row of the log, for a trial.
--   $1 the shard and $2 the first segment, where there are shards
select o."id"::bigint as id from "outbox" o  order by o."id" desc limit 1;

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
            from "outbox" o
            where o."id" between r.first_id and r.last_id
            order by o."id"
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
        select o."id" as id, case when o."created_at" > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when o."created_at" < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else o."created_at" end as created_at
        from "outbox" o
        where o."id" between r.first_id and r.last_id
        order by o."id"
        limit 1
    ) head
    cross join lateral (
        select o."id" as id
        from "outbox" o
        where o."id" between r.first_id and r.last_id
        order by o."id" desc
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
        select case when f."next_retry_at" > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when f."next_retry_at" < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else f."next_retry_at" end as next_attempt_at, case when f."failed_at" > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when f."failed_at" < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else f."failed_at" end as created_at,
            f."retry_count" >= $3::bigint
                as dead
        from "outbox_failed" f
        where f."id" <> all ($4::bigint[])
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
select o."id"::bigint as id, o."event_id"::text as event_id,
    o."aggregate_id"::text as ordering_key, null::text as tenant, o."event_type"::text as event_type,
    o."source"::text as source, o."aggregate_type"::text as aggregate_type, o."aggregate_id"::text as aggregate_id,
    null::text as topic, null::text as content_type, convert_to(o."payload"::text, 'UTF8') as payload,
    null::bytea as headers, case when o."created_at" > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when o."created_at" < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else o."created_at" end as created_at,
    -- Of one that was discarded only the row is left, which does not say so.
    false as discarded
from unnest($1::bigint[], $2::bigint[]) as r (first_id, last_id)
-- Each range by the index, in its order, and no further than to the limit.
cross join lateral (
    select * from "outbox" l where l."id" between r.first_id and r.last_id
    order by l."id"
    limit $3
) o
order by 1
limit $3;

-- list_failed
-- Rows of the table of failures as an operator sees them.
--   $1 beginning after this id  $2 events; all rows if null  $3 rows beside these  $4 limit
select f."id"::bigint as id, null::bigint::bigint as log_id, f."event_id"::text as event_id,
    f."aggregate_id"::text as ordering_key,
    null::text as tenant, f."event_type"::text as event_type, f."source"::text as source,
    f."aggregate_type"::text as aggregate_type, f."aggregate_id"::text as aggregate_id,
    null::text as topic, null::text as content_type, convert_to(f."payload"::text, 'UTF8') as payload,
    null::bytea as headers,
    case when f."failed_at" > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when f."failed_at" < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else f."failed_at" end as created_at,
    f."retry_count"::bigint as attempts, f."last_error"::text as last_error,
    case when f."next_retry_at" > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when f."next_retry_at" < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else f."next_retry_at" end as next_attempt_at,
    null::boolean as dead,
    null::timestamptz as died_at
from "outbox_failed" f
where f."id" > $1
    and ($2::text[] is null or f."id" = any ($3::bigint[])
        or f."event_id"::text = any ($2))
order by f."id"
limit $4;

-- find_dead
-- Failed rows that were given up, by their primary keys, in their order. Of the log nothing is read.
--   $1 beginning after this id  $2 retries after which a row is given up, where no time says that it was
--   $3 events; all rows if null  $4 rows beside these  $5 limit
--   $6 topic, $7 ordering key and $8 tenant, all if null, where each has a column of its own
select f."id"::bigint as id
from "outbox_failed" f
where f."id" > $1
    and f."retry_count" >= $2
    and ($3::text[] is null or f."id" = any ($4::bigint[])
        or f."event_id"::text = any ($3))
order by f."id"
limit $5;

-- replay
-- Begins failed rows again. Guarded: one that is no longer given up is left alone.
--   $1 ids  $2 retries after which a row is given up, where no time says that it was
update "outbox_failed" f
set "retry_count" = 0, "next_retry_at" = now()
where f."id" = any ($1::bigint[])
    and f."retry_count" >= $2
returning f."id"::bigint as id;

-- discard
-- Removes failed rows for good. Guarded: one that is no longer given up is left alone.
--   $1 ids  $2 retries after which a row is given up, where no time says that it was
delete from "outbox_failed" f
where f."id" = any ($1::bigint[])
    and f."retry_count" >= $2
returning f."id"::bigint as id;

-- readers/usable
-- Whether there is a table for the state of readers, which this user may write; and by what name it knows this log.
--   $1 the cursor's table  $2 the log's table  $3 the table of readers  $4 its schema
select n.nspname || '.' || c.relname as log, $2::text::regclass::oid::text || ' ' || c.oid::text as tables,
    r.oid is not null as exists,
    coalesce(
        has_schema_privilege(r.relnamespace, 'usage') and has_table_privilege(r.oid, 'select')
            and has_table_privilege(r.oid, 'insert')
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
-- The table may be one of an earlier version, which lacks the column.
select r.tables, r.state, coalesce(to_jsonb(r) ->> 'handed_out', '') as handed_out, r.position, r.xmin::text as written_by
from "posthaste".log_readers r
where r.log = $1;

-- readers/checkpoint
-- Writes down how far the log is settled, as a new row of the cursor if that moved, and what is not settled beyond it. One
-- statement, so that neither is there without the other. The new row is the newest also when the clock was set back.
--
-- Its commit does not wait for the disk, nor claims for it: what a crash of the server undoes of it is sent again, and what
-- commits later, such as the end of a segment, makes it durable.
--   $1 the position  $2 whether it moved  $3 the log  $4 its tables  $5 the state
--   $6 what may be handed out
--   $7 the shard and $8 the epoch of its seat, where there are shards: who has lost it writes nothing
with moved as (
    insert into "outbox_cursor" ("last_processed_id" , "created_at")
    select $1 , greatest(
            clock_timestamp(), (select max(case when c."created_at" > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when c."created_at" < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else c."created_at" end) + interval '1 microsecond' from "outbox_cursor" c)
        )
    where $2::boolean
    returning 1
),
written as (
    insert into "posthaste".log_readers (log, tables, state, position, handed_out)
    values ($3, $4, $5, $1::bigint, $6)
    on conflict (log) do update set
        tables = excluded.tables, state = excluded.state, position = excluded.position, handed_out = excluded.handed_out,
        updated_at = clock_timestamp()
    returning set_config('synchronous_commit', 'off', true)
)
select (select count(*) from moved) as moved, (select count(*) from written) as written;

-- readers/checkpoint_state
-- The same as checkpoint.sql where the table of readers was made before it had a place for what may be handed out.
--   $1 the position  $2 whether it moved  $3 the log  $4 its tables  $5 the state
with moved as (
    insert into "outbox_cursor" ("last_processed_id" , "created_at")
    select $1 , greatest(
            clock_timestamp(), (select max(case when c."created_at" > timestamptz '9999-12-31 00:00+00' then timestamptz '9999-12-31 00:00+00' when c."created_at" < timestamptz '0001-01-01 00:00+00' then timestamptz '0001-01-01 00:00+00' else c."created_at" end) + interval '1 microsecond' from "outbox_cursor" c)
        )
    where $2::boolean
    returning 1
),
written as (
    insert into "posthaste".log_readers (log, tables, state, position)
    values ($3, $4, $5, $1::bigint)
    on conflict (log) do update set
        tables = excluded.tables, state = excluded.state, position = excluded.position, updated_at = clock_timestamp()
    returning set_config('synchronous_commit', 'off', true)
)
select (select count(*) from moved) as moved, (select count(*) from written) as written;

