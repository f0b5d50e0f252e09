-- Begins failed rows again. Guarded: one that is no longer given up is left alone.
--   $1 ids  $2 retries after which a row is given up
update "@failed" f
set "@failed/attempts" = 0, "@failed/next_attempt_at" = /*as failed/next_attempt_at*/ now() /*end*/
where "@f.failed/id" = any ($1::bigint[]) and "@f.failed/attempts" >= $2
returning "@f.failed/id:int"::bigint as id
