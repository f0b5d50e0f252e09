-- Locks rows that were found, unless somebody else has them or they can no longer be claimed.
--   $1 ids  $2 max attempts  $3 whether they come from vanished workers
select "@o.id:text" as id, cast(coalesce(octet_length("@o.payload"), 0) as signed) as bytes
from "@outbox" o
where "@o.id" in ($1)
    /*if attempts*/ and coalesce("@o.attempts", 0) < /*put o.max_attempts*/ /*end*/
    and case when $3
        then /*if locked_until*/ "@o.status" = '@processing' and "@o.locked_until:time" < utc_timestamp(6) /*else*/ false /*end*/
        else "@o.status" in ('@open') /*if next_attempt_at*/ and coalesce("@o.next_attempt_at:time" <= utc_timestamp(6), 1) /*end*/
    end
for update skip locked
