-- Rows of a scope on which verdicts can be tried.
--   $1 namespace  $2 unused  $3 whether all topics are served  $4 topics  $5 tenant
select "@o.id:text" as id
from "@outbox" o
where "@o.status" in ('@open')
    /*put o.and_in_scope*/
limit 100
