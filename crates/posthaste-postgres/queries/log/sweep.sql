-- Gives up failed rows that have used all their retries under a limit that is lower than the table's,
-- but for those that another transaction has locked.
--   $1 retries that were allowed  $2 retries after which a row is given up
update "@failed" f
set "@failed/attempts" = $2
where "@f.failed/id" = any (array(
    select "@l.failed/id"
    from "@failed" l
    where "@l.failed/attempts" >= $1 and "@l.failed/attempts" < $2
    for update skip locked
))
returning "@f.failed/id:int"::bigint as id
