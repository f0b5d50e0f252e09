-- Shards whose numbers go on below what was read of them: what is written there counts as read. A sequence that this role may not read
-- says nothing.
--   $1 the schema
select s.shard, s.read_to, s.last_value
from (
    select o.shard, o.read_to, case when has_sequence_privilege(o.sequence, 'select, usage') then
        coalesce(pg_sequence_last_value(o.sequence), o.shard::bigint << 44)
    end as last_value
    from (
        select r.shard, "posthaste".log_read_to(r.state, r.position) as read_to,
            to_regclass(quote_ident($1::text) || '.log_shard_' || r.shard::text || '_seq') as sequence
        from "posthaste".log_shards r
        -- A name is looked up once for each shard.
        offset 0
    ) o
    offset 0
) s
where s.last_value < s.read_to
order by s.shard
