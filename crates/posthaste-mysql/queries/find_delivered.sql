-- Finds delivered rows past their retention, oldest first, and locks them, but for those that somebody else has locked.
--   $1 age in ms  $2 limit
select "@o.id:text" as id
from "@outbox" o
where "@o.status" = '@delivered'
    and "@o.delivered_at:time" < timestampadd(microsecond, -1000 * $1, utc_timestamp(6))
order by "@o.delivered_at"
limit $2
for update skip locked
