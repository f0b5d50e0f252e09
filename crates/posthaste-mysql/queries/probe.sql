-- What vanished workers left behind: the most attempts among rows that may be tried again, and how many may not.
--   $1 namespace  $2 max attempts  $3 whether all topics are served  $4 topics  $5 tenant
--
-- Without a derived table: where the server wants full groups, MariaDB takes an aggregate over one only once.
select
    cast(max(case when coalesce("@o.attempts", 0) < /*if max_attempts*/ coalesce("@o.max_attempts" + /*if retries*/ 1 /*else*/ 0 /*end*/, $2) /*else*/ $2 /*end*/
        then coalesce("@o.attempts", 0) end) as signed) as most_tried,
    count(case when coalesce("@o.attempts", 0) >= /*if max_attempts*/ coalesce("@o.max_attempts" + /*if retries*/ 1 /*else*/ 0 /*end*/, $2) /*else*/ $2 /*end*/
        then 1 end) as exhausted
from "@outbox" o
where "@o.status" = '@processing'
    and /*if locked_until*/ "@o.locked_until:time" < utc_timestamp(6) /*else*/ false /*end*/
    /*if namespace*/ and "@o.namespace" = $1 /*end*/
    /*if topic*/ and ($3 or "@o.topic" in ($4)) /*end*/
    /*if tenant*/ and ($5 is null or "@o.tenant" = $5) /*end*/
