-- Writes down how far the log is settled, as a new row of the cursor if that moved, and what is not settled beyond it. One
-- statement, so that neither is there without the other. The new row is the newest also when the clock was set back.
--
-- Its commit does not wait for the disk, nor claims for it: what a crash of the server undoes of it is sent again, and what
-- commits later, such as the end of a segment, makes it durable.
--   $1 the position  $2 whether it moved  $3 the log  $4 its tables  $5 the state
--   $6 what may be handed out
--   $7 the shard and $8 the epoch of its seat, where there are shards: who has lost it writes nothing
/*if shard*/
with written as (
    -- The first number of the state is the highest that was read.
    update "@reader_state"
    set position = $1::bigint, state = $5::text, hi = split_part($5::text, ';', 1)::bigint, handed_out = $6::text,
        updated_at = clock_timestamp()
    where shard = $7 and epoch = $8 and $2::boolean is not null and $3::text is not null and $4::text is not null
    returning set_config('synchronous_commit', 'off', true)
)
select count(*) as moved, count(*) as written from written
/*else*/
with moved as (
    insert into "@cursor" ("@cursor/position" /*if cursor/created_at*/ , "@cursor/created_at" /*end*/)
    select $1 /*if cursor/created_at*/ , /*as cursor/created_at*/ greatest(
            clock_timestamp(), (select max("@c.cursor/created_at:time") + interval '1 microsecond' from "@cursor" c)
        ) /*end*/ /*end*/
    where $2::boolean
    returning 1
),
written as (
    insert into "posthaste".log_readers (log, tables, state, position, handed_out)
    values ($3, $4, $5, $1::bigint, $6)
    on conflict (log) do update set
        tables = excluded.tables, state = excluded.state, position = excluded.position, handed_out = excluded.handed_out,
        updated_at = clock_timestamp()
    returning set_config('synchronous_commit', 'off', true)
)
select (select count(*) from moved) as moved, (select count(*) from written) as written
/*end*/
