-- Rows as an operator sees them.
--   $1 namespace  $2 whether rows in any state are wanted  $3 labels of the state  $4 topic  $5 key  $6 tenant
--   $7 whether rows of any id are wanted  $8 ids  $9 the row after which the list goes on  $10 limit
select
    "@o.seq:int" as seq, "@o.message", "@o.max_attempts:int" as max_attempts, "@o.version:int" as version,
    "@o.status:text" as status, "@o.attempts:int" as attempts, /*if next_attempt_at*/ "@o.next_attempt_at:time" /*else*/ null /*end*/ as next_attempt_at,
    /*if locked_by*/ "@o.locked_by:text" /*else*/ "@o.lease_token:text" /*end*/ as locked_by,
    /*if locked_until*/ "@o.locked_until:time" /*else*/ null /*end*/ as locked_until, "@o.last_error:text" as last_error, "@o.created_at:time" as created_at,
    /*if updated_at*/ "@o.updated_at:time" /*else*/ null /*end*/ as updated_at,
    /*if delivered_at*/ "@o.delivered_at:time" /*else*/ null /*end*/ as delivered_at
from "@outbox" o
where ($2 or "@o.status" in ($3))
    /*if namespace*/ and ($1 is null or "@o.namespace" = $1) /*end*/
    /*if topic*/ and ($4 is null or "@o.topic" = $4) /*end*/
    /*if ordering_key*/ and ($5 is null or "@o.ordering_key" = $5) /*end*/
    /*if tenant*/ and ($6 is null or "@o.tenant" = $6) /*end*/
    and ($7 or "@o.id" in ($8))
    and ($9 is null or ("@o.order") > (select "@a.order" from "@outbox" a where "@a.id" = $9))
order by "@o.order"
limit $10
