-- Begins failed rows again. Guarded: one that is no longer given up is left alone.
--   $1 ids  $2 retries after which a row is given up, where no time says that it was
update "@failed" f
set "@failed/attempts" = 0, "@failed/next_attempt_at" = /*as failed/next_attempt_at*/ now() /*end*/
    /*if failed/died_at*/ , "@failed/died_at" = null /*end*/
where "@f.failed/id" = any ($1::bigint[])
    and /*if failed/died_at*/ "@f.failed/died_at" is not null and $2::bigint is not null
        /*else*/ "@f.failed/attempts" >= $2 /*end*/
returning "@f.failed/id:int"::bigint as id
