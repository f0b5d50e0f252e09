-- Removes delivered rows past their retention, oldest first.
--   ?1 retention in ms  ?2 limit
delete from "@outbox" indexed by "@outbox+id"
where "@id" in (
    select "@id"
    from "@outbox" indexed by "@outbox+delivered"
    where "@status" = '@delivered' and "@delivered_at" < cast(unixepoch('subsec') * 1000 as integer) - ?1
    order by "@delivered_at"
    limit ?2
)
