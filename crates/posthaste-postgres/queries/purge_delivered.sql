-- Removes delivered rows past their retention, oldest first.
--   $1 age in ms  $2 limit  $3 namespace, or null for all
with chosen as materialized (
    select "@o.id" as id
    from "@outbox" o
    where "@o.status" = '@delivered'
        and /*if delivered_at*/ "@o.delivered_at" < /*as delivered_at*/ now() - $1::bigint * interval '1 millisecond' /*end*/
        /*else*/ /*if updated_at*/ "@o.updated_at" < /*as updated_at*/ now() - $1::bigint * interval '1 millisecond' /*end*/
        /*else*/ "@o.created_at" < /*as created_at*/ now() - $1::bigint * interval '1 millisecond' /*end*/ /*end*/ /*end*/
        and /*if namespace*/ ($3::text is null or "@o.namespace:text" = $3) /*else*/ ($3::text is null or true) /*end*/
    order by /*if delivered_at*/ "@o.delivered_at" /*else*/ /*if updated_at*/ "@o.updated_at"
        /*else*/ "@o.created_at" /*end*/ /*end*/
    limit $2
    for update skip locked
)
delete from "@outbox" o where "@o.id" = any (array(select id from chosen))
