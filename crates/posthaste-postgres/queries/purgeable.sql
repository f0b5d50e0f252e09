-- Counts what a purge would remove: delivered rows and dead rows past their retention, and dedupe keys whose window is over
-- and whose row is gone by then.
--   $1 age of delivered rows in ms  $2 namespace, or null for all  $3 age of dead rows in ms
select (
    select count(*)
    from "@outbox" o
    where "@o.status" = '@delivered'
        and /*if delivered_at*/ "@o.delivered_at" < /*as delivered_at*/ now() - $1::bigint * interval '1 millisecond' /*end*/
        /*else*/ /*if updated_at*/ "@o.updated_at" < /*as updated_at*/ now() - $1::bigint * interval '1 millisecond' /*end*/
        /*else*/ "@o.created_at" < /*as created_at*/ now() - $1::bigint * interval '1 millisecond' /*end*/ /*end*/ /*end*/
        and /*if namespace*/ ($2::text is null or "@o.namespace:text" = $2) /*else*/ ($2::text is null or true) /*end*/
) as delivered, /*if updated_at*/ (
    select count(*)
    from "@outbox" o
    where "@o.status" = '@dead'
        and "@o.updated_at" < /*as updated_at*/ now() - $3::bigint * interval '1 millisecond' /*end*/
        and /*if namespace*/ ($2::text is null or "@o.namespace:text" = $2) /*else*/ ($2::text is null or true) /*end*/
) /*else*/ 0 * coalesce($3::bigint, 0) /*end*/ as dead, /*if dedupe*/ (
    select count(*)
    from "@dedupe" d
    where d.expires_at <= now()
        and not exists (
            select from "@outbox" o
            where "@o.id" = d.message_id
                and (
                    (
                        "@o.status" = '@delivered' and "@o.delivered_at" < now() - $1::bigint * interval '1 millisecond'
                        or "@o.status" = '@dead' and "@o.updated_at" < now() - $3::bigint * interval '1 millisecond'
                    )
                    and ($2::text is null or "@o.namespace" = $2)
                ) is not true
        )
) /*else*/ 0::bigint /*end*/ as dedupe
