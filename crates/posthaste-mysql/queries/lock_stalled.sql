-- Locks them, unless another transaction has them or they are no longer such, and says which have no attempt left.
--   $1 ids  $2 max attempts  $3 how long, in ms
select "@o.id:text" as id,
    coalesce("@o.attempts", 0) >= /*put o.max_attempts*/ as exhausted
from "@outbox" o
where "@o.id" in ($1) and "@o.status" = '@processing'
    and coalesce("@o.locked_at:time" < timestampadd(microsecond, -1000 * $3, utc_timestamp(6)), 1)
for update skip locked
