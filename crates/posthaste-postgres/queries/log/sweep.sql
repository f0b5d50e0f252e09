-- Gives up failed rows that have used all their retries under a limit that is lower than the table's.
--   $1 retries that were allowed  $2 retries after which a row is given up
update "@failed" f
set "@failed/attempts" = $2
where "@f.failed/attempts" >= $1 and "@f.failed/attempts" < $2
returning "@f.failed/id:int"::bigint as id
