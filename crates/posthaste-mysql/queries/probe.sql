-- What crashed workers left behind: the most attempts among rows that may be tried again, and how many may not.
--   $1 namespace  $2 max attempts  $3 whether all topics are served  $4 topics  $5 tenant
--
-- Without a derived table: where the server wants full groups, MariaDB takes an aggregate over one only once.
select
    cast(max(case when coalesce("@o.attempts", 0) < /*put o.max_attempts*/
        then coalesce("@o.attempts", 0) end) as signed) as most_tried,
    count(case when coalesce("@o.attempts", 0) >= /*put o.max_attempts*/
        then 1 end) as exhausted
from "@outbox" o
where "@o.status" = '@processing'
    and /*if locked_until*/ "@o.locked_until:time" < utc_timestamp(6) /*else*/ false /*end*/
    /*put o.and_in_scope*/
