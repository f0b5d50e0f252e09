-- Finds dead rows that an operator means, in order.
--   $1 namespace  $2 topic  $3 key  $4 tenant  $5 whether rows of any id are wanted  $6 ids  $7 limit
select "@o.id:text" as id
from "@outbox" o
where "@o.status" = '@dead'
    /*if namespace*/ and ($1 is null or "@o.namespace" = $1) /*end*/
    /*if topic*/ and ($2 is null or "@o.topic" = $2) /*end*/
    /*if ordering_key*/ and ($3 is null or "@o.ordering_key" = $3) /*end*/
    /*if tenant*/ and ($4 is null or "@o.tenant" = $4) /*end*/
    and ($5 or "@o.id" in ($6))
order by "@o.order"
limit $7
