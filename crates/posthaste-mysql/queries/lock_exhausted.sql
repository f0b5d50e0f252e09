-- Locks such rows, unless another transaction has them or they are no longer such.
--   $1 ids  $2 max attempts
select "@o.id:text" as id
from "@outbox" o
where "@o.id" in ($1) and "@o.status" in ('@open' /*if locked_until*/, '@processing' /*end*/)
    and coalesce("@o.attempts", 0) >= /*put o.max_attempts*/
    /*if locked_until*/ and ("@o.status" <> '@processing' or "@o.locked_until:time" < utc_timestamp(6)) /*end*/
for update skip locked
