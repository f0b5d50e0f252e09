-- Counts what is not delivered.
--   $1, $2 first and last of the ids that were not handed out  $3 retries after which a row is given up
--   $4 failed rows that are handed out
with unread as (
    select count(*) as n, min("@o.created_at:time") as oldest
    from unnest($1::bigint[], $2::bigint[]) as r (first_id, last_id)
    join "@outbox" o on "@o.id" between r.first_id and r.last_id
),
failed as (
    select
        count(*) filter (where "@f.failed/attempts:int" < $3::bigint) as live,
        count(*) filter (where "@f.failed/attempts:int" < $3::bigint and "@f.failed/next_attempt_at:time" > now())
            as waiting,
        count(*) filter (where "@f.failed/attempts:int" >= $3::bigint) as dead,
        min("@f.failed/created_at:time") filter (where "@f.failed/attempts:int" < $3::bigint) as oldest
    from "@failed" f
    where "@f.failed/id" <> all ($4::bigint[])
)
select unread.n + failed.live as pending, failed.waiting, failed.dead,
    coalesce(extract(epoch from now() - least(unread.oldest, failed.oldest)), 0)::float8 as oldest_seconds
from unread, failed
