-- Forgets relays that died without leaving.
--   ?1 worker that is not meant  ?2 silence in ms
delete from "@relays" where worker <> ?1 and seen_at < cast(unixepoch('subsec') * 1000 as integer) - ?2
