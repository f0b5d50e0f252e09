-- Removes what was given up long ago, but for what another transaction has locked.
--   $1 age in ms  $2 limit
delete from "@failed"
where "@failed/id" = any (array(
    select "@f.failed/id"
    from "@failed" f
    where "@f.failed/died_at:time" < now() - $1::bigint * interval '1 millisecond'
    order by "@f.failed/died_at"
    limit $2
    for update skip locked
))
returning /*if failed/event_id*/ "@failed/event_id:text" /*else*/ "@failed/id:text" /*end*/ as id
