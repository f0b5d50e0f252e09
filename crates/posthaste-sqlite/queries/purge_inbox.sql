-- Forgets what one consumer handled longer ago than the broker can deliver again.
--   ?1 consumer  ?2 retention in ms  ?3 limit
delete from "@inbox" indexed by "@inbox+key"
where (consumer, key) in (
    select consumer, key
    from "@inbox" indexed by "@inbox+handled"
    where consumer = ?1 and handled_at < cast(unixepoch('subsec') * 1000 as integer) - ?2
    order by handled_at
    limit ?3
)
