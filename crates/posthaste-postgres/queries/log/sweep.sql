-- Gives up failed rows that have used all their retries under a limit that is lower than the table's,
-- but for those that another transaction has locked.
--   $1 retries (or attempts, where the time of death is kept) that were allowed  $2 retries after which a row is given up
--   $3 the shard, where there are shards
update "@failed" f
set /*if failed/died_at*/ "@failed/died_at" = /*as failed/died_at*/ now() /*end*/ /*else*/ "@failed/attempts" = $2 /*end*/
where "@f.failed/id" = any (array(
    select "@l.failed/id"
    from "@failed" l
    where "@l.failed/attempts" >= $1 /*if shard*/ and "@l.failed/shard" = $3::integer /*end*/
        and /*if failed/died_at*/ "@l.failed/died_at" is null and $2::bigint is not null
            /*else*/ "@l.failed/attempts" < $2 /*end*/
    for update skip locked
))
returning "@f.failed/id:int"::bigint as id
