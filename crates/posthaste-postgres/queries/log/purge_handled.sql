-- Forgets what was handled longer ago than the broker can deliver again.
--   $1 age in ms  $2 limit
delete from "@handled"
where ctid = any (array(
    select h.ctid
    from "@handled" h
    where "@h.handled/created_at:time" < now() - $1::bigint * interval '1 millisecond'
    order by "@h.handled/created_at"
    limit $2
    for update skip locked
))
