-- The ids up to the cursor that no row has: closed by an earlier reader, of whose memory only the cursor is left.
--   $1 the cursor  $2 how many ids below it are looked at  $3 limit
select g.after_id + 1 as first_id, g.before_id - 1 as last_id
from (
    select i.id as after_id, lead(i.id, 1, $1::bigint + 1) over (order by i.id) as before_id
    from (
        select greatest($1::bigint - $2::bigint, 0) as id
        union all
        select "@o.id:int"::bigint
        from "@outbox" o
        where "@o.id" > greatest($1::bigint - $2::bigint, 0) and "@o.id" <= $1::bigint
    ) i
) g
where g.before_id > g.after_id + 1
order by 1 desc
limit $3
