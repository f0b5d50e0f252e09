-- Settled rows of the log in its order: which of them are past their retention, which are not yet, and which are kept all the same. A
-- time that is none, or in the future, is neither of the first two.
--   ?1 retention in ms  ?2 limit  ?3 up to this row everything is settled  ?4 beyond this row
select o.seq, o.created_at < cast(unixepoch('subsec') * 1000 as integer) - ?1 as is_old,
    o.created_at between cast(unixepoch('subsec') * 1000 as integer) - ?1 and cast(unixepoch('subsec') * 1000 as integer) as is_young,
    exists (select 1 from "@failed" f where f.id = o.id) as is_kept
from "@outbox" o
where o.seq > ?4 and o.seq <= ?3
order by o.seq
limit ?2
