-- Forgets relays that were not heard for long: they died without leaving.
--   ?1 age in ms  ?2 limit
delete from "@relays" where worker in (
    select worker from "@relays"
    where seen_at < cast(unixepoch('subsec') * 1000 as integer) - ?1
    order by seen_at
    limit ?2
)
