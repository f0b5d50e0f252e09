-- How far the log is settled: the newest row says it.
select "@c.cursor/position:int"::bigint as position
from "@cursor" c
order by /*if cursor/created_at*/ "@c.cursor/created_at" desc, /*end*/ /*if cursor/id*/ "@c.cursor/id" desc, /*end*/
    "@c.cursor/position" desc
limit 1
