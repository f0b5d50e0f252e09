-- The shards as an operator sees them. The lag is what is open of the numbers that were read, and what was given out since, if there
-- are rows of it: numbers that were rolled back after the last row are nobody's. Numbers are counted within the shard.
--   $1 the schema
select s.shard, s.generation, s.epoch, s.position - (s.shard::bigint << 44) as position,
    case when s.leased_until > clock_timestamp() then s.owner end as owner, s.leased_until,
    s.shard in (select "posthaste".log_readable_shards()) as readable,
    (
        select min(l.pid)
        from pg_locks l
        where l.locktype = 'advisory' and l.granted and l.objsubid = 1
            and l.database = (select oid from pg_database where datname = current_database())
            and ((l.classid::bigint << 32) | l.objid::bigint) = hashtextextended(
                'posthaste:log:' || to_regclass(quote_ident($1::text) || '.log_shards')::oid::text || ':' || s.shard::text, 0)
    ) as process,
    (
        select coalesce(sum(s.bounds[i + 1] - s.bounds[i]), 0)::bigint
        from generate_series(1, cardinality(s.bounds) - 1, 2) i
    ) + case when exists (select from "posthaste".log l where l.shard = s.shard and l.seq > s.hi) then greatest(
        coalesce(pg_sequence_last_value(to_regclass(quote_ident($1::text) || '.log_shard_' || s.shard::text || '_seq')), s.hi) - s.hi, 0
    ) else 0 end as lag
from (
    select o.shard, o.generation, o.epoch, o.position, o.owner, o.leased_until,
        "posthaste".log_read_to(o.state, o.position) as hi, "posthaste".log_open_bounds(o.state) as bounds
    from "posthaste".log_shards o
    -- A state is taken apart once, and not for each of its ranges, of which there may be thousands while a broker is slow.
    offset 0
) s
order by s.shard
