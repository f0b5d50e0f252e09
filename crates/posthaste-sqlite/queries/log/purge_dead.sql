-- Removes what died longer ago than its retention, oldest first.
--   ?1 retention in ms  ?2 limit
delete from "@failed"
where number in (
    select number
    from "@failed"
    where died_at is not null and died_at < cast(unixepoch('subsec') * 1000 as integer) - ?1
    order by died_at
    limit ?2
)
returning id, log_id, number
