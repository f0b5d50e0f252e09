-- Rows of the log by number. What stands before them in their lane beside the log, they wait for there.
--   ?1 first  ?2 last  ?3 limit
select "@o.message", o.seq as seq, 1 as attempts, null as max_attempts, null as version, o.created_at as created_at,
    exists (select 1 from "@failed" f where f.id = o.id) as kept,
    exists (
        select 1 from "@failed" f where f.topic = o.topic and f.ordering_key = o.ordering_key and f.died_at is null
            and f.log_id < o.seq
    ) as held,
    exists (
        select 1 from "@failed" f where f.topic = o.topic and f.ordering_key = o.ordering_key and f.died_at is not null
            and f.log_id < o.seq
    ) as held_by_dead
from "@outbox" o
where o.seq between ?1 and ?2
order by o.seq
limit ?3
