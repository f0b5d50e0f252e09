-- What is to be delivered from a log that nobody reads: rows that no reader has settled, and what waits beside it. Nothing while a shard
-- has an owner, for whoever reads one takes those that are free. Of each shard, and beside the log, so many are counted.
--   $1 the first segment that may have rows which are not settled  $2 how many are counted
with unowned as (
    select s.shard, "posthaste".log_read_to(s.state, s.position) as hi, "posthaste".log_open_bounds(s.state) as bounds
    from "posthaste".log_shards s
    where not exists (
        select from "posthaste".log_shards o where o.owner is not null and o.leased_until > clock_timestamp()
    )
    -- A state is taken apart once, and not for each of its ranges.
    offset 0
),
unsettled as (
    select l.created_at, false as later
    from unowned s
    cross join lateral (
        select s.bounds[i] as first_seq, s.bounds[i + 1] as end_seq
        from generate_series(1, cardinality(s.bounds) - 1, 2) i
        union all
        select s.hi + 1, 9223372036854775807
    ) r
    -- Range by range, by the index.
    cross join lateral (
        select l.created_at
        from "posthaste".log l
        where l.shard = s.shard and l.segment >= $1 and l.seq >= r.first_seq and l.seq < r.end_seq
        order by l.seq
        limit $2
    ) l
    union all
    select f.created_at, f.later
    from (
        select f.created_at, f.next_attempt_at > now() as later
        from "posthaste".log_failed f
        where f.died_at is null and exists (select from unowned)
        limit $2
    ) f
)
select count(*) as pending, count(*) filter (where later) as waiting,
    coalesce(extract(epoch from now() - min(created_at) filter (where isfinite(created_at))), 0)::float8 as oldest_seconds
from unsettled
