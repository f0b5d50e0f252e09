-- Finds rows that have used all their attempts without a verdict.
--   $1 namespace  $2 max attempts  $3 whether all topics are served  $4 topics  $5 tenant  $6 limit
select "@o.id:text" as id
from "@outbox" o
where "@o.status" in ('@open' /*if locked_until*/, '@processing' /*end*/)
    and coalesce("@o.attempts", 0) >= /*put o.max_attempts*/
    /*if locked_until*/ and ("@o.status" <> '@processing' or "@o.locked_until:time" < utc_timestamp(6)) /*end*/
    /*put o.and_in_scope*/
limit $6
