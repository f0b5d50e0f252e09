-- How far the log is settled: the newest row says it, or the row of the shard.
/*if shard*/
select s.position, s.epoch from "@reader_state" s where s.shard = $1
/*else*/
select "@c.cursor/position:int"::bigint as position
from "@cursor" c
order by /*if cursor/created_at*/ "@c.cursor/created_at" desc, /*end*/ /*if cursor/id*/ "@c.cursor/id" desc, /*end*/
    "@c.cursor/position" desc
limit 1
/*end*/
