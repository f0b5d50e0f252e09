-- Shards whose numbers go on below what was read of them: what is written there counts as read. A sequence that this role may not read
-- says nothing.
--   $1 the schema
select s.shard, s.read_to, s.last_value
from (
    select o.shard, "posthaste".log_read_to(o.state, o.position) as read_to,
        coalesce(pg_sequence_last_value(q.oid), o.shard::bigint << 44) as last_value
    from "posthaste".log_shards o
    join pg_class q on q.oid = to_regclass(quote_ident($1::text) || '.log_shard_' || o.shard::text || '_seq')
    where has_sequence_privilege(q.oid, 'select, usage')
    -- What is joined is asked for no sequence that may not be read.
    offset 0
) s
where s.last_value < s.read_to
order by s.shard
