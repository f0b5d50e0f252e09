-- How many of these rows of the log are not in the table of failures, where they were just written: a trigger may suppress that.
--   ?1 their numbers
select count(*)
from json_each(?1) n
join "@outbox" o on o.seq = n.value
where not exists (select 1 from "@failed" f where f.id = o.id)
