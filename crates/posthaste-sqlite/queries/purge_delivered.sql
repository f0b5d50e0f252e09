-- Removes delivered rows past their retention, oldest first. Their age counts from the best time that the table has.
--   ?1 retention in ms  ?2 limit  ?3 namespace, or null for all
delete from "@outbox" /*if split_index*/ indexed by "@outbox+id" /*end*/
where "@id" in (
    select "@id"
    from "@outbox" /*if split_index*/ indexed by "@outbox+delivered" /*end*/
    where "@status" = '@delivered'
        and /*if delivered_at*/ "@delivered_at:time" /*else*/ /*if updated_at*/ "@updated_at:time" /*else*/ "@created_at:time" /*end*/ /*end*/
            < cast(unixepoch('subsec') * 1000 as integer) - ?1
        /*if namespace*/ and (?3 is null or "@namespace" = /*as namespace*/ ?3 /*end*/) /*end*/
    order by /*if delivered_at*/ "@delivered_at" /*else*/ "@order" /*end*/
    limit ?2
)
