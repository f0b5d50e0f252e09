-- The generations of shards. Keys go to the shards of the newest one; its readers begin when the one before is read to its end, so
-- that no event passes an earlier one of its key.
create table "@schema".log_generations (
    generation  integer primary key,
    first_shard integer not null,
    shards      integer not null check (shards between 1 and 1024),
    made_at     timestamptz not null default now(),
    switched_at timestamptz,
    -- Transactions that may still have taken numbers of the generation before when rows began to go to this one.
    waits_for   text[]
);
insert into "@schema".log_generations (generation, first_shard, shards, switched_at, waits_for)
select 1, shape.value >> 16, shape.value & 65535, now(), '{}'
from (select pg_sequence_last_value('@schema.log_shape'::regclass) as value) shape;

-- The transactions at work that may take numbers of the log: whoever writes to it, and whoever has taken one.
create function "@schema".log_number_takers() returns text[]
language sql volatile
as $posthaste$
    select coalesce(array_agg(distinct l.virtualtransaction), '{}')
    from pg_locks l
    join pg_class c on c.oid = l.relation
    join pg_namespace n on n.oid = c.relnamespace
    where l.locktype = 'relation' and l.mode = 'RowExclusiveLock' and l.granted and l.pid is not null
        and l.database = (select oid from pg_database where datname = current_database())
        and n.nspname = '@schema'
        and (c.relname = 'log' or c.relkind = 'S' and c.relname ~ '^log_shard_[0-9]+_seq$')
$posthaste$;

-- Gives a shard's sequence to the owner of the log, whoever made it, and the rights of those before it to whoever has them:
-- producers must be able to take its numbers from the moment on in which rows go there.
create function "@schema".log_share_sequence(name text) returns void
language plpgsql
as $posthaste$
declare
    owner   name := (select pg_get_userbyid(relowner) from pg_class where oid = '@schema.log'::regclass);
    granted record;
begin
    if owner <> current_user then
        execute format('alter sequence %I.%I owner to %I', '@schema', name, owner);
    end if;
    execute format('alter sequence %I.%I owned by %s.seq', '@schema', name, '@schema.log');
    for granted in
        select distinct a.grantee, a.privilege_type, a.is_grantable
        from pg_class c
        join pg_namespace n on n.oid = c.relnamespace
        cross join lateral aclexplode(c.relacl) a
        where n.nspname = '@schema' and c.relkind = 'S' and c.relname ~ '^log_shard_[0-9]+_seq$'
            and a.grantee <> c.relowner
    loop
        execute format('grant %s on sequence %I.%I to %s%s', granted.privilege_type, '@schema', name,
            case granted.grantee when 0 then 'public' else quote_ident(pg_get_userbyid(granted.grantee)) end,
            case when granted.is_grantable then ' with grant option' else '' end);
    end loop;
end
$posthaste$;

-- Makes the shards of the next generation, if the newest has fewer; says which generation it is. Rows go there after
-- `log_use_shards`, to be called when this is committed: others must see the sequences before they are told to use them.
create function "@schema".log_make_shards(wanted integer) returns integer
language plpgsql
as $posthaste$
declare
    newest "@schema".log_generations;
    place  integer;
begin
    lock table "@schema".log_generations in exclusive mode;
    select * into newest from "@schema".log_generations order by generation desc limit 1;
    if newest.switched_at is null or newest.shards = wanted then
        return newest.generation;
    elsif wanted < newest.shards then
        raise invalid_parameter_value
            using message = format('posthaste: the log has %s shards, and their number can only be raised', newest.shards);
    end if;
    insert into "@schema".log_generations (generation, first_shard, shards)
    values (newest.generation + 1, newest.first_shard + newest.shards, wanted);
    for place in newest.first_shard + newest.shards .. newest.first_shard + newest.shards + wanted - 1 loop
        execute format('create sequence %I.%I cache 1 start with %s', '@schema', 'log_shard_' || place || '_seq',
            (place::bigint << 44) + 1);
        perform "@schema".log_share_sequence('log_shard_' || place || '_seq');
        insert into "@schema".log_shards (shard, generation, position, hi)
        values (place, newest.generation + 1, place::bigint << 44, place::bigint << 44);
    end loop;
    return newest.generation + 1;
end
$posthaste$;

-- Sends rows to the newest generation from now on, and writes down who may still send one to the generation before.
create function "@schema".log_use_shards() returns boolean
language plpgsql
as $posthaste$
declare
    newest "@schema".log_generations;
begin
    select * into newest from "@schema".log_generations order by generation desc limit 1 for update;
    if newest.switched_at is not null then
        return false;
    end if;
    perform setval('@schema.log_shape'::regclass, newest.first_shard::bigint * 65536 + newest.shards);
    update "@schema".log_generations set switched_at = clock_timestamp(), waits_for = "@schema".log_number_takers()
    where generation = newest.generation;
    return true;
end
$posthaste$;

-- The shards that may be read: those of each generation up to the first that is not at its end. A generation is at its end when
-- nobody can write to it any more, prepared transactions included, and no row of it is open. Rows that wait beside the log do
-- not count: whoever reads a later row of their key finds them there.
create function "@schema".log_readable_shards() returns setof integer
language plpgsql
as $posthaste$
declare
    old    "@schema".log_generations;
    next   "@schema".log_generations;
    reader record;
begin
    for old in select * from "@schema".log_generations order by generation loop
        return query select s.shard from "@schema".log_shards s where s.generation = old.generation order by s.shard;
        select * into next from "@schema".log_generations where generation = old.generation + 1;
        exit when not found or next.switched_at is null or next.waits_for && "@schema".log_number_takers();
        for reader in
            select s.shard, "@schema".log_read_to(s.state, s.position) as hi, "@schema".log_open_bounds(s.state) as bounds,
                format('%I.%I', '@schema', 'log_shard_' || s.shard || '_seq')::regclass as sequence
            from "@schema".log_shards s
            where s.generation = old.generation
        loop
            if exists (select from pg_locks
                    where locktype = 'relation' and mode = 'RowExclusiveLock' and relation = reader.sequence
                        and database = (select oid from pg_database where datname = current_database()))
                or exists (select from "@schema".log l where l.shard = reader.shard and l.seq > reader.hi)
                or exists (
                    select from generate_series(1, cardinality(reader.bounds) - 1, 2) i
                    where exists (select from "@schema".log l where l.shard = reader.shard
                        and l.seq >= reader.bounds[i] and l.seq < reader.bounds[i + 1])) then
                return;
            end if;
        end loop;
    end loop;
end
$posthaste$;
