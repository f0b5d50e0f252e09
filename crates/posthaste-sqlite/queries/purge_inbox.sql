-- Forgets what was handled longer ago than the broker can deliver again.
--   ?1 retention in ms  ?2 limit
delete from "@inbox" indexed by "@inbox+key"
where (consumer, key) in (
    select consumer, key
    from "@inbox" indexed by "@inbox+handled"
    where handled_at < cast(unixepoch('subsec') * 1000 as integer) - ?1
    order by handled_at
    limit ?2
)
