-- Which of these shards have something to hand out: rows beyond what was read, numbers that are open, failures whose time has come.
--   $1 the shards
select s.shard
from (
    select o.shard, "posthaste".log_read_to(o.state, o.position) as hi, "posthaste".log_open_bounds(o.state) as bounds
    from "posthaste".log_shards o
    where o.shard = any ($1::integer[])
) s
where cardinality(s.bounds) > 0
    or exists (select from "posthaste".log l where l.shard = s.shard and l.seq > s.hi)
    or exists (
        select from "posthaste".log_failed f
        where f.shard = s.shard and f.died_at is null and f.next_attempt_at <= clock_timestamp())
