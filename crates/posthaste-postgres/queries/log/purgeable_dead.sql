-- Counts what a purge of the dead would remove.
--   $1 age in ms
select count(*) as rows
from "@failed" f
where "@f.failed/died_at:time" < now() - $1::bigint * interval '1 millisecond'
