-- Counts what a purge would remove: old rows of the cursor but for the newest, and settled rows of the log, if the relay is
-- told to remove those.
--   $1 age of cursor rows in ms  $2 the stored cursor  $3 whether rows of the log are removed  $4 their age in ms
select (
    select count(*)
    from "@cursor" c
    where "@c.cursor/created_at:time" < now() - $1::bigint * interval '1 millisecond'
        and c.ctid <> (
            select n.ctid
            from "@cursor" n
            order by "@n.cursor/created_at" desc, /*if cursor/id*/ "@n.cursor/id" desc, /*end*/
                "@n.cursor/position" desc
            limit 1
        )
) as cursor_rows, (
    select count(*)
    from "@outbox" o
    where $3::boolean
        and "@o.id" <= $2::bigint
        and "@o.created_at:time" < now() - $4::bigint * interval '1 millisecond'
) as log_rows
