-- Finds dead rows past their retention, those that died first before the others, and locks them, but for those that another
-- transaction has locked.
--   $1 age in ms  $2 limit  $3 namespace, or null for all
select "@o.id:text" as id
from "@outbox" o
where "@o.status" = '@dead'
    and "@o.updated_at:time" < timestampadd(microsecond, -1000 * $1, utc_timestamp(6))
    /*if namespace*/ and ($3 is null or "@o.namespace" = $3) /*end*/
order by "@o.updated_at"
limit $2
for update skip locked
