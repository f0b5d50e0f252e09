-- Removes old rows of the cursor, never the newest.
--   $1 age in ms  $2 limit
delete from "@cursor"
where ctid = any (array(
    select c.ctid
    from "@cursor" c
    where "@c.cursor/created_at:time" < now() - $1::bigint * interval '1 millisecond'
        and c.ctid <> (
            select n.ctid
            from "@cursor" n
            order by "@n.cursor/created_at" desc, /*if cursor/id*/ "@n.cursor/id" desc, /*end*/
                "@n.cursor/position" desc
            limit 1
        )
    order by "@c.cursor/created_at"
    limit $2
))
