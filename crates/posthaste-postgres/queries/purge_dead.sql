-- Removes dead rows past their retention, those that died first before the others. Guarded: a row that is no longer dead is
-- left alone.
--   $1 age in ms  $2 limit  $3 namespace, or null for all
with chosen as materialized (
    select "@o.id" as id
    from "@outbox" o
    where "@o.status" = '@dead'
        and "@o.updated_at" < /*as updated_at*/ now() - $1::bigint * interval '1 millisecond' /*end*/
        and /*if namespace*/ ($3::text is null or "@o.namespace:text" = $3) /*else*/ ($3::text is null or true) /*end*/
    order by "@o.updated_at"
    limit $2
    for update skip locked
)
delete from "@outbox" o
where "@o.id" = any (array(select id from chosen))
returning "@o.id:text" as id
