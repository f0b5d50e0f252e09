-- Rows of the log as they are in the table of failures.
--   ?1 their numbers in the log
select f.number
from json_each(?1) n
join "@outbox" o on o.seq = n.value
join "@failed" f on f.id = o.id
