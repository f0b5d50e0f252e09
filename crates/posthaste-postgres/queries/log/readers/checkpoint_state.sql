-- The same as checkpoint.sql where the table of readers was made before it had a place for what may be handed out.
--   $1 the position  $2 whether it moved  $3 the log  $4 its tables  $5 the state
with moved as (
    insert into "@cursor" ("@cursor/position" /*if cursor/created_at*/ , "@cursor/created_at" /*end*/)
    select $1 /*if cursor/created_at*/ , /*as cursor/created_at*/ greatest(
            clock_timestamp(), (select max("@c.cursor/created_at:time") + interval '1 microsecond' from "@cursor" c)
        ) /*end*/ /*end*/
    where $2::boolean
    returning 1
),
written as (
    insert into "posthaste".log_readers (log, tables, state, position)
    values ($3, $4, $5, $1::bigint)
    on conflict (log) do update set
        tables = excluded.tables, state = excluded.state, position = excluded.position, updated_at = clock_timestamp()
    returning set_config('synchronous_commit', 'off', true)
)
select (select count(*) from moved) as moved, (select count(*) from written) as written
