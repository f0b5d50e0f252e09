-- Counts what is not delivered. Of the rows that were not handed out so many are counted, and of more it is told how many numbers
-- they have: a backlog of millions must cost no more than one of thousands every few seconds.
--   $1, $2 first and last of the ids that were not handed out  $3 retries after which a row is given up
--   $4 failed rows that are handed out  $5 how many are counted, all of them without a number; where there are shards, each range
--   is of one, and each number tells its own,
--   $6 the first segment
with ranges as (
    select r.first_id, r.last_id from unnest($1::bigint[], $2::bigint[]) as r (first_id, last_id)
),
counted as (
    select count(*) as n
    from (
        select
        from ranges r
        cross join lateral (
            select
            from "@outbox" o
            where "@o.id" between r.first_id and r.last_id
                /*if shard*/ and "@o.shard" = (r.first_id >> 44)::integer and o.segment >= $6 /*end*/
            order by "@o.id"
            -- Not the number itself: of one that it knows the planner may think that it is all there is, and sort that.
            limit (select $5::bigint + 1)
        ) o
        limit (select $5::bigint + 1)
    ) o
),
-- The first of a range is the oldest of it.
unread as (
    select min(head.created_at) as oldest, sum(tail.id - head.id + 1)::bigint as numbers
    from ranges r
    cross join lateral (
        select "@o.id" as id, "@o.created_at:time" as created_at
        from "@outbox" o
        where "@o.id" between r.first_id and r.last_id
            /*if shard*/ and "@o.shard" = (r.first_id >> 44)::integer and o.segment >= $6 /*end*/
        order by "@o.id"
        limit 1
    ) head
    cross join lateral (
        select "@o.id" as id
        from "@outbox" o
        where "@o.id" between r.first_id and r.last_id
            /*if shard*/ and "@o.shard" = (r.first_id >> 44)::integer and o.segment >= $6 /*end*/
        order by "@o.id" desc
        limit 1
    ) tail
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
select case when counted.n > $5::bigint then greatest(counted.n, unread.numbers) else counted.n end + failed.live as pending,
    failed.waiting, failed.dead,
    coalesce(extract(epoch from now() - least(unread.oldest, failed.oldest)), 0)::float8 as oldest_seconds
from counted, unread, failed
