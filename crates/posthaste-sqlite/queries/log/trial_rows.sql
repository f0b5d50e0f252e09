-- The newest rows of the log that have not failed.
--   ?1 limit
select o.seq
from "@outbox" o
where not exists (select 1 from "@failed" f where f.id = o.id)
order by o.seq desc
limit ?1
