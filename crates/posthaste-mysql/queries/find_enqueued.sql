-- Finds the row that kept another from being written: one with the dedupe key, or the event id, or the id. Locking, because
-- a plain read may be one of the past.
--   $1 id  $2 event id  $3 namespace  $4 topic  $5 unused  $6 unused  $7 dedupe key
select "@o.id:text" as id
from "@outbox" o
where /*if dedupe_key*/ ("@o.dedupe_key" = $7
        /*if namespace*/ and "@o.namespace" = $3 /*end*/
        /*if topic*/ and "@o.topic" = $4 /*end*/) /*else*/ false /*end*/
    /*if event_id*/ or "@o.event_id" = $2 /*end*/
    /*if generated_id*/ /*else*/ or "@o.id" = $1 /*end*/
limit 1
lock in share mode
