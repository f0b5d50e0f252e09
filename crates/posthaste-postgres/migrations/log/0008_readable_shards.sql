-- The shards that may be read: those of each generation up to the first that is not at its end. A generation is at its end when
-- nobody can write to it any more, prepared transactions included, and no row of it is open. Rows that wait beside the log do
-- not count: whoever reads a later row of their key finds them there.
--
-- Locks are asked for in statements before those that read, never in the same: a statement has its snapshot before it looks at
-- locks, so that a transaction which ends in between would have neither a lock nor a row in it. To be called in a transaction of its
-- own, read committed.
create or replace function "@schema".log_readable_shards() returns setof integer
language plpgsql
as $posthaste$
declare
    old       "@schema".log_generations;
    next      "@schema".log_generations;
    sequences regclass[];
    reader    record;
begin
    for old in select * from "@schema".log_generations order by generation loop
        return query select s.shard from "@schema".log_shards s where s.generation = old.generation order by s.shard;
        select * into next from "@schema".log_generations where generation = old.generation + 1;
        exit when not found or next.switched_at is null or next.waits_for && "@schema".log_number_takers();
        select array_agg(format('%I.%I', '@schema', 'log_shard_' || s.shard || '_seq')::regclass) into sequences
        from "@schema".log_shards s
        where s.generation = old.generation;
        exit when exists (select from pg_locks
            where locktype = 'relation' and mode = 'RowExclusiveLock' and relation = any (sequences::oid[])
                and database = (select oid from pg_database where datname = current_database()));
        for reader in
            select s.shard, "@schema".log_read_to(s.state, s.position) as hi, "@schema".log_open_bounds(s.state) as bounds
            from "@schema".log_shards s
            where s.generation = old.generation
        loop
            if exists (select from "@schema".log l where l.shard = reader.shard and l.seq > reader.hi)
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
