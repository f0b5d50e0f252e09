-- Locks them, unless somebody else has them or they are no longer such, and says which have no attempt left.
--   $1 ids  $2 max attempts  $3 how long, in ms
select "@o.id:text" as id,
    coalesce("@o.attempts", 0) >= /*if max_attempts*/ coalesce("@o.max_attempts" /*if retries*/ + 1 /*end*/, $2) /*else*/ $2 /*end*/ as exhausted
from "@outbox" o
where "@o.id" in ($1) and "@o.status" = '@processing'
    and coalesce("@o.locked_at:time" < timestampadd(microsecond, -1000 * $3, utc_timestamp(6)), 1)
for update skip locked
