-- The life of each segment of the log: attached, ready, opened, closed, quiet, settled, dropped.
create table "@schema".log_segments (
    segment     bigint primary key,
    attached_at timestamptz not null default clock_timestamp(),
    -- Transactions that may know the log without this segment: it is opened when they have ended. Null until they were looked up.
    waits_for   text[],
    ready_at    timestamptz,
    opened_at   timestamptz,
    -- How many numbers the shards had given out when it was opened.
    opened_ids  bigint,
    closed_at   timestamptz,
    -- Transactions that may still have been writing to it when it was closed.
    holders     text[],
    -- Since when nothing is written to it any more, and how many rows it has.
    quiet_at    timestamptz,
    row_count   bigint,
    -- Since when all its rows are known to be settled: retention counts from here.
    settled_at  timestamptz,
    dropped_at  timestamptz
);
insert into "@schema".log_segments (segment, waits_for, ready_at)
select s, '{}', now() from generate_series(1, 3) s;
update "@schema".log_segments set opened_at = now(), opened_ids = 0 where segment = 1;

-- The transactions at work that may write to the log. Prepared ones are left out: they write nothing more, and what they have
-- written to stays locked until they end.
create function "@schema".log_writers() returns text[]
language sql volatile
as $posthaste$
    select coalesce(array_agg(distinct virtualtransaction), '{}')
    from pg_locks
    where locktype = 'relation' and mode = 'RowExclusiveLock' and granted and pid is not null
        and database = (select oid from pg_database where datname = current_database())
        and relation = '@schema.log'::regclass
$posthaste$;

-- How many numbers all shards together have given out.
create function "@schema".log_given_ids() returns bigint
language sql volatile
as $posthaste$
    -- Each counts from its shard's number * 2^44 on.
    select coalesce(sum(pg_sequence_last_value(c.oid) & ((1::bigint << 44) - 1)), 0)::bigint
    from pg_class c
    join pg_namespace n on n.oid = c.relnamespace
    where n.nspname = '@schema' and c.relkind = 'S' and c.relname ~ '^log_shard_[0-9]+_seq$'
$posthaste$;

-- Makes segments until so many stand ready behind the current one. A table of its own with the right constraint is attached
-- without being scanned, and takes no lock that a writer could notice.
create function "@schema".log_make_segments(ahead integer) returns integer
language plpgsql
as $posthaste$
declare
    current bigint := pg_sequence_last_value('@schema.log_segment'::regclass);
    made    integer := 0;
    owner   name := (select pg_get_userbyid(relowner) from pg_class where oid = '@schema.log'::regclass);
    next    bigint;
    part    text;
begin
    for next in current + 1 .. current + ahead loop
        continue when exists (select from "@schema".log_segments s where s.segment = next);
        part := format('%I.%I', '@schema', 'log_' || next);
        execute format('create table %s (like %s including all, check (segment is not null and segment >= %s and segment < %s))',
            part, '@schema.log', next, next + 1);
        -- Whoever made it, those who may drop others may drop this one.
        if owner <> current_user then
            execute format('alter table %s owner to %I', part, owner);
        end if;
        execute format('alter table %s attach partition %s for values from (%s) to (%s)', '@schema.log', part, next, next + 1);
        insert into "@schema".log_segments (segment) values (next);
        made := made + 1;
    end loop;
    return made;
end
$posthaste$;

-- Which of the segments ahead may be opened. A transaction that uses the log keeps to the list of segments that it saw first,
-- so that one which began before a segment was attached has to end before rows are sent there. To be called in a transaction
-- of its own: what is recorded are those that were at work when the segment was there for all.
create function "@schema".log_ready_segments() returns integer
language plpgsql
as $posthaste$
declare
    ready integer;
begin
    update "@schema".log_segments set waits_for = "@schema".log_writers()
    where waits_for is null and attached_at < now();
    update "@schema".log_segments set ready_at = clock_timestamp()
    where ready_at is null and waits_for is not null and not waits_for && "@schema".log_writers();
    get diagnostics ready = row_count;
    return ready;
end
$posthaste$;

-- Opens the next segment if the current one is old or full, and says what came of it: `open` (nothing to do), `rotated`, or
-- `not ready` if it is due and the next one may not be opened yet; rows then go on into the current one.
create function "@schema".log_rotate(max_age interval, max_rows bigint) returns text
language plpgsql
as $posthaste$
declare
    current bigint := pg_sequence_last_value('@schema.log_segment'::regclass);
    given   bigint := "@schema".log_given_ids();
    -- The more there are, the longer each of them is open: whoever looks at all of them locks each, and there is room for some
    -- thousand locks.
    share   bigint := greatest((select count(*) from "@schema".log_segments where dropped_at is null) / 100, 1);
    now_open "@schema".log_segments;
begin
    perform "@schema".log_close_segments();
    select * into now_open from "@schema".log_segments where segment = current;
    if given = now_open.opened_ids
        or clock_timestamp() < now_open.opened_at + share * max_age and given - now_open.opened_ids < max_rows then
        return 'open';
    end if;
    if not exists (select from "@schema".log_segments where segment = current + 1 and ready_at is not null) then
        return 'not ready';
    end if;
    -- Not nextval, which reserves 32 numbers in the write-ahead log: after a crash it would stand at a segment that is not there.
    perform setval('@schema.log_segment'::regclass, current + 1);
    perform "@schema".log_close_segments();
    return 'rotated';
end
$posthaste$;

-- Writes down which segment is open and which are closed, after the sequence says so. Apart, so that a rotation of which only
-- the sequence is left is made up for.
create function "@schema".log_close_segments() returns void
language plpgsql
as $posthaste$
declare
    current bigint := pg_sequence_last_value('@schema.log_segment'::regclass);
begin
    update "@schema".log_segments set opened_at = clock_timestamp(), opened_ids = "@schema".log_given_ids()
    where segment = current and opened_at is null;
    update "@schema".log_segments set closed_at = clock_timestamp(), holders = "@schema".log_writers(),
        opened_at = coalesce(opened_at, clock_timestamp())
    where segment < current and closed_at is null;
end
$posthaste$;

-- Where each open range of a reader's state ("hi;a-b,c-d") begins and where the first settled number after it is: a number is
-- open if an odd count of these is at or below it.
create function "@schema".log_open_bounds(state text) returns bigint[]
language sql immutable parallel safe
as $posthaste$
    select coalesce(array_agg(b.bound order by b.bound), '{}')
    from unnest(string_to_array(nullif(split_part(state, ';', 2), ''), ',')) r (range)
    cross join lateral (values
        (split_part(r.range, '-', 1)::bigint),
        (coalesce(nullif(split_part(r.range, '-', 2), ''), r.range)::bigint + 1)
    ) b (bound)
$posthaste$;

-- Up to where a reader has read.
create function "@schema".log_read_to(state text, "position" bigint) returns bigint
language sql immutable parallel safe
as $posthaste$ select coalesce(nullif(split_part(state, ';', 1), '')::bigint, "position") $posthaste$;

-- Readers look at no segment that is settled. One that is set back reads some of them again, so that none is.
create function "@schema".log_unsettle_segments() returns trigger
language plpgsql
as $posthaste$
begin
    update "@schema".log_segments set settled_at = null where settled_at is not null and dropped_at is null;
    return null;
end
$posthaste$;
create trigger log_set_back after update on "@reader_state"
for each row when (
    new.position < old.position
    or "@schema".log_read_to(new.state, new.position) < "@schema".log_read_to(old.state, old.position)
) execute function "@schema".log_unsettle_segments();

-- Whether a segment has a row that is not settled, or waits for another try.
create function "@schema".log_has_unsettled(segment bigint) returns boolean
language plpgsql
as $posthaste$
declare
    part   text := format('%I.%I', '@schema', 'log_' || segment);
    place  integer;
    reader record;
    found_open boolean;
begin
    -- From shard to shard by the index.
    execute format('select min(shard) from %s', part) into place;
    while place is not null loop
        select "@schema".log_read_to(state, position) as hi, "@schema".log_open_bounds(state) as bounds into reader
        from "@schema".log_shards where shard = place;
        if not found then
            return true;
        end if;
        execute format('select exists (select from %s where shard = $1 and seq > $2)', part)
            using place, reader.hi into found_open;
        if found_open then
            return true;
        end if;
        execute format('select exists (
            select from generate_series(1, cardinality($2) - 1, 2) i
            where exists (select from %s where shard = $1 and seq >= $2[i] and seq < $2[i + 1]))', part)
            using place, reader.bounds into found_open;
        if found_open then
            return true;
        end if;
        execute format('select min(shard) from %s where shard > $1', part) using place into place;
    end loop;
    execute format('select exists (
        select from %s f
        where f.died_at is null and exists (select from %s l where l.shard = f.shard and l.seq = f.log_id))',
        '@schema.log_failed', part)
        into found_open;
    return found_open;
end
$posthaste$;

-- Takes note of segments to which nothing is written any more, and of those that are settled; says how many of these there are.
-- To be called in a transaction of its own, read committed: whoever is no longer at work has committed before the rows are
-- looked at.
create function "@schema".log_settle_segments() returns integer
language plpgsql
as $posthaste$
declare
    closed  "@schema".log_segments;
    part    text;
    settled integer := 0;
begin
    for closed in
        select * from "@schema".log_segments s
        where s.closed_at is not null and s.settled_at is null and s.dropped_at is null
        order by s.segment
    loop
        part := format('%I.%I', '@schema', 'log_' || closed.segment);
        if closed.quiet_at is null then
            -- Whoever was prepared since has no name here, but has locked what it wrote to.
            continue when closed.holders && "@schema".log_writers() or exists (
                select from pg_locks
                where locktype = 'relation' and mode = 'RowExclusiveLock' and relation = part::regclass
                    and database = (select oid from pg_database where datname = current_database()));
            -- What operators look for. Made now, it costs no insert anything; the rows are counted on the way.
            execute format('create index on %s using brin (created_at, id) with (pages_per_range = 32)', part);
            update "@schema".log_segments s
            set quiet_at = clock_timestamp(), row_count = (select greatest(reltuples, 0) from pg_class where oid = part::regclass)
            where s.segment = closed.segment;
        end if;
        if not "@schema".log_has_unsettled(closed.segment) then
            update "@schema".log_segments s set settled_at = clock_timestamp() where s.segment = closed.segment;
            settled := settled + 1;
        end if;
    end loop;
    return settled;
end
$posthaste$;

-- The segments that may be dropped, oldest first. A reader may have been set back since they were settled, so that is asked anew.
create function "@schema".log_old_segments(retention interval)
returns table (segment bigint, row_count bigint, is_attached boolean, is_pending boolean)
language sql volatile
as $posthaste$
    select s.segment, coalesce(s.row_count, 0), i.inhrelid is not null,
        -- A column of PostgreSQL 14 and later.
        coalesce((to_jsonb(i) ->> 'inhdetachpending')::boolean, false)
    from "@schema".log_segments s
    left join pg_inherits i on i.inhrelid = to_regclass(format('%I.%I', '@schema', 'log_' || s.segment))
    where s.settled_at <= clock_timestamp() - retention and s.dropped_at is null
        and s.segment < pg_sequence_last_value('@schema.log_segment'::regclass)
        and case when to_regclass(format('%I.%I', '@schema', 'log_' || s.segment)) is null then true
            else not "@schema".log_has_unsettled(s.segment) end
    order by s.segment
$posthaste$;

-- Each event with its state, as an operator asks for it: pending, waiting (for its time, another try, or one before it),
-- delivered or dead.
create view "@schema".outbox_log as
select l.id, case
        when r.hi is null or l.seq > r.hi or width_bucket(l.seq, r.bounds) % 2 = 1 then 'pending'
        else 'delivered'
    end as state,
    l.topic, l.ordering_key, l.tenant, l.event_type, l.source, l.aggregate_type, l.aggregate_id,
    coalesce(l.content_type, 'application/json') as content_type, l.payload, l.headers, l.created_at,
    null::integer as attempts, null::timestamptz as next_attempt_at, null::text as last_error, null::timestamptz as died_at,
    l.segment, l.shard, l.seq
from "@schema".log l
left join (
    select shard, "@schema".log_read_to(state, position) as hi, "@schema".log_open_bounds(state) as bounds
    from "@schema".log_shards
    -- Once for each reader, not for each row.
    offset 0
) r on r.shard = l.shard
where not exists (select from "@schema".log_failed f where f.shard = l.shard and f.log_id = l.seq)
union all
select f.event_id, case when f.died_at is null then 'waiting' else 'dead' end,
    f.topic, f.ordering_key, f.tenant, f.event_type, f.source, f.aggregate_type, f.aggregate_id,
    coalesce(f.content_type, 'application/json'), f.payload, f.headers, f.created_at,
    f.attempts, f.next_attempt_at, f.last_error, f.died_at,
    null, f.shard, f.log_id
from "@schema".log_failed f;
