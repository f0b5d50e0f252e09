-- Rows that came after the cursor had passed their ids: their transactions have higher numbers than the one that moved it
-- there. Whether an earlier reader found them nobody knows, so only what came lately is told.
--   $1 the cursor  $2 how many ids below it are looked at  $3 lately, in ms before the cursor last moved  $4 limit
--   $5 the transaction from which on everything is new, if there is one
--   $6 the transaction that wrote down that all ids up to $1 were read, if there is one: it counts as a move to there
with newest as (
    select c.xmin, "@c.cursor/position:int"::bigint as position,
        /*if cursor/created_at*/ "@c.cursor/created_at:time" /*else*/ now() /*end*/ as moved_at,
        row_number() over (
            order by /*if cursor/created_at*/ "@c.cursor/created_at" desc, /*end*/
                /*if cursor/id*/ "@c.cursor/id" desc, /*end*/ "@c.cursor/position" desc
        ) as place
    from "@cursor" c
    order by /*if cursor/created_at*/ "@c.cursor/created_at" desc, /*end*/
        /*if cursor/id*/ "@c.cursor/id" desc, /*end*/ "@c.cursor/position" desc
    limit 20000
),
moves as materialized (
    select position, age(xmin) as move_age, max(moved_at) over () as last_at,
        lag(moved_at) over (order by place) as next_at,
        min(position) over (order by place) as lowest_since
    from newest
),
passed as materialized (
    select position, move_age
    from moves
    -- One from before the cursor was set back says nothing.
    where position <= lowest_since
        and coalesce(next_at, 'infinity') >= last_at - $3::bigint * interval '1 millisecond'
    union all
    select $1::bigint, age($6::text::xid)
    where $6::text is not null
),
placed as (
    select id, is_row, row_age, max(move_age) over (order by id desc, is_row) as passed_age
    from (
        select position as id, false as is_row, null::integer as row_age, move_age from passed
        union all
        select "@o.id:int"::bigint, true, age(o.xmin), null
        from "@outbox" o
        where "@o.id" > $1::bigint - $2::bigint and "@o.id" <= $1::bigint
            and age(o.xmin) between 0 and greatest((select max(move_age) from passed), age($5::text::xid))
    ) i
)
select id, count(*) over () as found
from placed
where is_row and (row_age < passed_age or row_age <= age($5::text::xid))
order by id desc
limit $4
