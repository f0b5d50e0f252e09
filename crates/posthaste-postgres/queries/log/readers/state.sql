-- What the last reader of a log left, and the transaction that wrote it.
--   $1 the log
select r.tables, r.state, r.position, r.xmin::text as written_by
from "posthaste".log_readers r
where r.log = $1
