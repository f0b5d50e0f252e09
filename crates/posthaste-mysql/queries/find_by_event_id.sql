-- Finds the row that kept another from being written: the one with its event id. Locking, because a plain read may be one
-- of the past; by one index alone, because a wider search would wait for rows that others write, who may wait for us.
--   $1 unused  $2 event id
select 1 as place, "@o.id:text" as id, false as is_new
from "@outbox" o
where /*if event_id*/ "@o.event_id" = $2 /*else*/ false /*end*/
limit 1
lock in share mode
