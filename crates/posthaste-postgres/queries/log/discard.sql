-- Removes failed rows for good. Guarded: one that is no longer given up is left alone.
--   $1 ids  $2 retries after which a row is given up
delete from "@failed" f
where "@f.failed/id" = any ($1::bigint[]) and "@f.failed/attempts" >= $2
returning "@f.failed/id:int"::bigint as id
