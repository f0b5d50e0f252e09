-- What the last reader of a log left, and the transaction that wrote it.
--   $1 the log
/*if shard*/
select null::text as tables, s.state, s.position, s.xmin::text as written_by
from "@reader_state" s
where s.shard = $2 and s.state <> '' and $1::text is not null
/*else*/
select r.tables, r.state, r.position, r.xmin::text as written_by
from "posthaste".log_readers r
where r.log = $1
/*end*/
