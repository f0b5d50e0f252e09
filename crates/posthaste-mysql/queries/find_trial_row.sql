-- Rows of a scope on which verdicts can be tried.
--   $1 namespace  $2 unused  $3 whether all topics are served  $4 topics  $5 tenant
select "@o.id:text" as id
from "@outbox" o
where "@o.status" in ('@open')
    /*if namespace*/ and "@o.namespace" = $1 /*end*/
    /*if topic*/ and ($3 or "@o.topic" in ($4)) /*end*/
    /*if tenant*/ and ($5 is null or "@o.tenant" = $5) /*end*/
limit 100
