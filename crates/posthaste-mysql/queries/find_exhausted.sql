-- Finds rows that have used all their attempts without a verdict.
--   $1 namespace  $2 max attempts  $3 whether all topics are served  $4 topics  $5 tenant  $6 limit
select "@o.id:text" as id
from "@outbox" o
where "@o.status" in ('@open' /*if locked_until*/, '@processing' /*end*/)
    and coalesce("@o.attempts", 0) >= /*if max_attempts*/ coalesce("@o.max_attempts" /*if retries*/ + 1 /*end*/, $2) /*else*/ $2 /*end*/
    /*if locked_until*/ and ("@o.status" <> '@processing' or "@o.locked_until:time" < utc_timestamp(6)) /*end*/
    /*if namespace*/ and "@o.namespace" = $1 /*end*/
    /*if topic*/ and ($3 or "@o.topic" in ($4)) /*end*/
    /*if tenant*/ and ($5 is null or "@o.tenant" = $5) /*end*/
limit $6
