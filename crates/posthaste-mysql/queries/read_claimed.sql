-- What was claimed, in order.
--   $1 ids
select
    "@o.seq:int" as seq, "@o.message", "@o.attempts:int" as attempts,
    "@o.max_attempts:int" as max_attempts, "@o.version:int" as version, "@o.created_at:time" as created_at
from "@outbox" o
where "@o.id" in ($1)
order by "@o.order"
