-- The topics of the oldest rows of the log that were not read, those with the most first.
--   ?1 the highest row that was read  ?2 how many rows are looked at
select topic, count(*) as pending,
    max(0, coalesce(cast(unixepoch('subsec') * 1000 as integer) - min(created_at), 0)) as oldest_ms
from (select topic, created_at from "@outbox" where seq > ?1 order by seq limit ?2)
group by topic
order by 2 desc, 1
