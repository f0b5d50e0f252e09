-- What the last reader of a log left, and the transaction that wrote it.
--   $1 the log
/*if shard*/
select null::text as tables, s.state, s.handed_out, s.position, s.xmin::text as written_by
from "@reader_state" s
where s.shard = $2 and s.state <> '' and $1::text is not null
/*else*/
-- The table may be one of an earlier version, which lacks the column.
select r.tables, r.state, coalesce(to_jsonb(r) ->> 'handed_out', '') as handed_out, r.position, r.xmin::text as written_by
from "posthaste".log_readers r
where r.log = $1
/*end*/
