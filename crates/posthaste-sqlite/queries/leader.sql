-- Who leads, other than the one who asks; a look before the leap, so that relays that stand by do not write.
--   ?1 namespace  ?2 worker
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now)
select worker, until - now as left_ms
from "@leaders", clock
where namespace = ?1 and worker <> ?2 and until > now
