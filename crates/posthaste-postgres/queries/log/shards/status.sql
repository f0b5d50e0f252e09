-- The shards as an operator sees them. What was given out and not settled is the lag. Numbers are counted within the shard.
--   $1 the schema
select s.shard, s.generation, s.epoch, s.position - (s.shard::bigint << 44) as position,
    case when s.leased_until > clock_timestamp() then s.owner end as owner, s.leased_until,
    s.shard in (select "posthaste".log_readable_shards()) as readable,
    greatest(
        coalesce(
            pg_sequence_last_value(to_regclass(quote_ident($1::text) || '.log_shard_' || s.shard::text || '_seq')), s.position
        ) - s.position,
        0
    ) as lag
from "posthaste".log_shards s
order by s.shard
