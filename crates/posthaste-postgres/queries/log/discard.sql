-- Removes failed rows for good. Guarded: one that is no longer given up is left alone.
--   $1 ids  $2 retries after which a row is given up, where no time says that it was
delete from "@failed" f
where "@f.failed/id" = any ($1::bigint[])
    and /*if failed/died_at*/ "@f.failed/died_at" is not null and $2::bigint is not null
        /*else*/ "@f.failed/attempts" >= $2 /*end*/
returning "@f.failed/id:int"::bigint as id
