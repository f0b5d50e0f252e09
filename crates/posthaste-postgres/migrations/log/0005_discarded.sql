-- Which rows of the log were given up for good: their dead letters were removed, by an operator or by retention, before they were
-- replayed. Nothing else would tell them from delivered ones. What was removed before this table was there is not known.
create table "@schema".log_discarded (
    shard        integer not null,
    seq          bigint not null,
    discarded_at timestamptz not null default clock_timestamp(),
    primary key (shard, seq)
);

-- Whoever may read what failed may read this.
do $posthaste$
declare
    reader record;
begin
    for reader in
        select a.grantee, bool_or(a.is_grantable) as is_grantable
        from pg_class c
        cross join lateral aclexplode(c.relacl) a
        where c.oid = '@schema.log_failed'::regclass and a.privilege_type = 'SELECT' and a.grantee <> c.relowner
        group by a.grantee
    loop
        execute format('grant select on %s to %s%s', '@schema.log_discarded',
            case reader.grantee when 0 then 'public' else quote_ident(pg_get_userbyid(reader.grantee)) end,
            case when reader.is_grantable then ' with grant option' else '' end);
    end loop;
end
$posthaste$;

-- By a trigger, whoever removes them; with the rights of the owner, for whoever could remove them need not know of this table.
create function "@schema".log_note_discarded() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $posthaste$
begin
    insert into "@schema".log_discarded (shard, seq) values (old.shard, old.log_id) on conflict do nothing;
    return null;
end
$posthaste$;
create trigger log_note_discarded after delete on "@schema".log_failed for each row when (old.died_at is not null)
    execute function "@schema".log_note_discarded();

-- Readers look at no segment that is settled. One that is set back reads some of them again, so that none is; and what it reads
-- again it delivers, whatever became of it before.
create or replace function "@schema".log_unsettle_segments() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $posthaste$
begin
    update "@schema".log_segments set settled_at = null where settled_at is not null and dropped_at is null;
    delete from "@schema".log_discarded d where d.shard = new.shard and d.seq > new.position;
    return null;
end
$posthaste$;

-- Forgets those whose rows are gone with their segments: numbers below the first that a shard still has.
create function "@schema".log_forget_discarded() returns bigint
language plpgsql
as $posthaste$
declare
    place     integer;
    forgotten bigint := 0;
    removed   bigint;
begin
    for place in select distinct d.shard from "@schema".log_discarded d loop
        delete from "@schema".log_discarded d
        where d.shard = place
            and d.seq < coalesce((select min(l.seq) from "@schema".log l where l.shard = place), 9223372036854775807);
        get diagnostics removed = row_count;
        forgotten := forgotten + removed;
    end loop;
    return forgotten;
end
$posthaste$;

-- Each event with its state, as an operator asks for it: pending, waiting (for its time, another try, or one before it),
-- delivered, dead or discarded.
create or replace view "@schema".outbox_log as
select l.id, case
        when r.hi is null or l.seq > r.hi or width_bucket(l.seq, r.bounds) % 2 = 1 then 'pending'
        when d.seq is not null then 'discarded'
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
left join "@schema".log_discarded d on d.shard = l.shard and d.seq = l.seq
where not exists (select from "@schema".log_failed f where f.shard = l.shard and f.log_id = l.seq)
union all
select f.event_id, case when f.died_at is null then 'waiting' else 'dead' end,
    f.topic, f.ordering_key, f.tenant, f.event_type, f.source, f.aggregate_type, f.aggregate_id,
    coalesce(f.content_type, 'application/json'), f.payload, f.headers, f.created_at,
    f.attempts, f.next_attempt_at, f.last_error, f.died_at,
    null, f.shard, f.log_id
from "@schema".log_failed f;
