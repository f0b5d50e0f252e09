-- Finds delivered rows past their retention, oldest first, and locks them, but for those that another transaction has
-- locked. Their age counts from the best time that the table has.
--   $1 age in ms  $2 limit  $3 namespace, or null for all
select "@o.id:text" as id
from "@outbox" o
where "@o.status" = '@delivered'
    and /*if delivered_at*/ "@o.delivered_at:time" /*else*/ /*if updated_at*/ "@o.updated_at:time" /*else*/ "@o.created_at:time" /*end*/ /*end*/
        < timestampadd(microsecond, -1000 * $1, utc_timestamp(6))
    /*if namespace*/ and ($3 is null or "@o.namespace" = $3) /*end*/
order by /*if delivered_at*/ "@o.delivered_at" /*else*/ "@o.order" /*end*/
limit $2
for update skip locked
