-- What keeps the generation of shards that is read from ending, where a later one waits for it.
--   $1 the schema
with readable as materialized (
    select "posthaste".log_readable_shards() as shard
),
waited as materialized (
    select old.generation, next.waits_for
    from (select max(s.generation) as generation from "posthaste".log_shards s where s.shard in (select r.shard from readable r)) old
    join "posthaste".log_generations next on next.generation = old.generation + 1 and next.switched_at is not null
),
takers as materialized (
    select distinct l.virtualtransaction, l.pid
    from pg_locks l
    join pg_class c on c.oid = l.relation
    join pg_namespace n on n.oid = c.relnamespace
    cross join waited w
    where l.locktype = 'relation' and l.mode = 'RowExclusiveLock' and l.granted and n.nspname = $1::text
        and l.database = (select oid from pg_database where datname = current_database())
        and (
            c.relname = 'log' and l.virtualtransaction = any (w.waits_for)
            or c.relkind = 'S' and c.relname ~ '^log_shard_[0-9]+_seq$' and (l.virtualtransaction = any (w.waits_for)
                or c.relname in (
                    select 'log_shard_' || s.shard::text || '_seq' from "posthaste".log_shards s where s.generation = w.generation))
        )
)
(
    select format('process %s has written to the log and not ended its transaction for %s s (%s, %s); end it, or call '
        'pg_terminate_backend(%s)', t.pid, coalesce(round(extract(epoch from clock_timestamp() - a.xact_start))::text, '?'),
        coalesce(nullif(a.application_name, ''), a.usename, 'unknown'), coalesce(a.state, 'state not shown to this role'), t.pid) as hold_up
    from takers t
    left join pg_stat_activity a on a.pid = t.pid
    -- Locks are looked at before sessions: one that has none any more, as far as this role may see it, has ended in between.
    where t.pid is not null and not (a.state is not null and a.xact_start is null)
    order by a.xact_start
    limit 10
)
union all
(
    -- Until the server is started anew it has the name under which it was prepared, so that only a lock tells its number.
    select case
        when p.gid is null then format('the prepared transaction with the number %s; commit or roll it back (pg_prepared_xacts)',
            coalesce(x.transactionid::text, t.virtualtransaction))
        else format('the prepared transaction %L of %s; commit or roll it back (pg_prepared_xacts)', p.gid,
            to_char(p.prepared at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS "UTC"'))
    end
    from takers t
    left join pg_locks x on x.locktype = 'transactionid' and x.mode = 'ExclusiveLock' and x.pid is null
        and x.virtualtransaction = t.virtualtransaction
    left join pg_prepared_xacts p on p.transaction = x.transactionid
    where t.pid is null
    limit 10
)
union all
(
    select format('shard %s is not read to its end: %s', s.shard, concat_ws(', ',
        (
            select 'unsettled numbers ' || string_agg(format('%s-%s', s.bounds[i] - (s.shard::bigint << 44),
                s.bounds[i + 1] - 1 - (s.shard::bigint << 44)), ' ')
            from generate_series(1, least(cardinality(s.bounds) - 1, 5), 2) i
        ),
        case when s.has_more then 'rows after number ' || (s.hi - (s.shard::bigint << 44))::text end))
    from (
        select o.shard, r.hi, r.bounds,
            exists (select from "posthaste".log l where l.shard = o.shard and l.seq > r.hi) as has_more,
            exists (
                select from generate_series(1, cardinality(r.bounds) - 1, 2) i
                where exists (select from "posthaste".log l where l.shard = o.shard
                    and l.seq >= r.bounds[i] and l.seq < r.bounds[i + 1])) as has_open
        from "posthaste".log_shards o
        cross join lateral (
            select "posthaste".log_read_to(o.state, o.position) as hi, "posthaste".log_open_bounds(o.state) as bounds
        ) r
        where o.generation in (select w.generation from waited w)
    ) s
    where s.has_more or s.has_open
    order by s.shard
    limit 10
)
