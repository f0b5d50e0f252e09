-- The topics of the oldest rows that were not handed out and of the oldest failed ones, those with the most first. Of each shard as
-- many rows are looked at, by the index, whatever is in the log.
--   $1, $2 first and last of the ids that were not handed out; each range is of one shard, and each number tells its own
--   $3 how many rows are looked at in all, and how many failed ones  $4 failed rows that are handed out  $5 the first segment
with shares as (
    select r.first_id >> 44 as shard, array_agg(r.first_id order by r.first_id) as first_ids,
        array_agg(r.last_id order by r.first_id) as last_ids, greatest($3::bigint / count(*) over (), 1) as share
    from unnest($1::bigint[], $2::bigint[]) as r (first_id, last_id)
    group by 1
),
pending as (
    select n.topic, n.created_at
    from shares s
    cross join lateral (
        select o.topic, o.created_at
        from unnest(s.first_ids, s.last_ids) as r (first_id, last_id)
        cross join lateral (
            select "@l.topic" as topic, "@l.created_at" as created_at
            from "@outbox" l
            where "@l.shard" = s.shard::integer and "@l.id" between r.first_id and r.last_id and l.segment >= $5
            order by "@l.id"
            limit s.share
        ) o
        limit s.share
    ) n
    union all
    select f.topic, f.created_at
    from (
        select "@f.failed/id" as id, "@f.failed/topic" as topic, "@f.failed/created_at" as created_at,
            "@f.failed/died_at" is null as live
        from "@failed" f
        order by 1
        limit $3
    ) f
    where f.live and f.id <> all ($4::bigint[])
)
select topic, count(*) as pending,
    case when isfinite(min(created_at)) then extract(epoch from now() - min(created_at)) else 0 end::float8 as oldest_seconds
from pending
group by 1
order by count(*) desc, 1
