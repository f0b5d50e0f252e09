-- Copies a dead row to the dead-letter table, unless it is there.
--   $1 id
insert into "@dead_letter" ("@dead_letter/*")
select "@o.dead_letter:values"
from "@outbox" o
where "@o.id" = $1 and "@o.status" = '@dead'
    /*if dead_letter/id or dead_letter/event_id*/ and not exists (
        select 1
        from "@dead_letter" l
        where true
            /*if dead_letter/id*/ and "@l.dead_letter/id" = "@o.id" /*end*/
            /*if dead_letter/event_id and event_id*/ and "@l.dead_letter/event_id" = "@o.event_id" /*end*/
    ) /*end*/
