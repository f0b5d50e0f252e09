-- Finds the row that kept another from being written: the one with its dedupe key. Locking, because a plain read may be one
-- of the past; by one index alone, because a wider search would wait for rows that others write, who may wait for us.
--   $1 unused  $2 unused  $3 namespace  $4 topic  $5 unused  $6 unused  $7 dedupe key
select 1 as place, "@o.id:text" as id, false as is_new
from "@outbox" o
where /*if dedupe_key*/ "@o.dedupe_key" = $7
        /*if namespace*/ and "@o.namespace" = $3 /*end*/
        /*if topic*/ and "@o.topic" = $4 /*end*/ /*else*/ false /*end*/
limit 1
lock in share mode
