-- Finds the row that kept another from being written: the one with its id. Locking, because a plain read may be one of the
-- past; by one index alone, because a wider search would wait for rows that others write, who may wait for us.
--   $1 id
select 1 as place, "@o.id:text" as id, false as is_new
from "@outbox" o
where /*if generated_id*/ false /*else*/ "@o.id" = $1 /*end*/
limit 1
lock in share mode
