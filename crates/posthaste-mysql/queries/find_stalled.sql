-- Finds rows whose claim says since when it holds, and holds for too long.
--   $1 namespace  $2 unused  $3 whether all topics are served  $4 topics  $5 tenant  $6 how long, in ms  $7 limit
select "@o.id:text" as id
from "@outbox" o
where "@o.status" = '@processing'
    and coalesce("@o.locked_at:time" < timestampadd(microsecond, -1000 * $6, utc_timestamp(6)), 1)
    /*put o.and_in_scope*/
-- Some may be refused each time: those must not hide the others.
order by rand() limit $7
