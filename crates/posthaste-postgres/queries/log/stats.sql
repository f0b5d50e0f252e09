-- Counts what is not delivered.
--   $1, $2 first and last of the ids that were not handed out  $3 retries after which a row is given up
--   $4 failed rows that are handed out; where there are shards, each range is of one, and each number tells its own,
--   $5 the first segment
with unread as (
    select count(*) as n, min("@o.created_at:time") as oldest
    from unnest($1::bigint[], $2::bigint[]) as r (first_id, last_id)
    join "@outbox" o on "@o.id" between r.first_id and r.last_id
        /*if shard*/ and "@o.shard" = (r.first_id >> 44)::integer and o.segment >= $5 /*end*/
),
failed as (
    select
        count(*) filter (where not f.dead) as live,
        count(*) filter (where not f.dead and f.next_attempt_at > now()) as waiting,
        count(*) filter (where f.dead) as dead,
        min(f.created_at) filter (where not f.dead) as oldest
    from (
        select "@f.failed/next_attempt_at:time" as next_attempt_at, "@f.failed/created_at:time" as created_at,
            /*if failed/died_at*/ "@f.failed/died_at" is not null /*else*/ "@f.failed/attempts:int" >= $3::bigint /*end*/
                as dead
        from "@failed" f
        where "@f.failed/id" <> all ($4::bigint[]) /*if failed/died_at*/ and $3::bigint is not null /*end*/
    ) f
)
select unread.n + failed.live as pending, failed.waiting, failed.dead,
    coalesce(extract(epoch from now() - least(unread.oldest, failed.oldest)), 0)::float8 as oldest_seconds
from unread, failed
