-- Counts what a purge would remove: delivered rows and dead rows past their retention, and dedupe keys whose window is over
-- and whose row is gone by then.
--   $1 age of delivered rows in ms  $2 namespace, or null for all  $3 age of dead rows in ms
select /*if delivered_at or updated_at or created_at*/ (
    select count(*)
    from "@outbox" o
    where "@o.status" = '@delivered'
        and /*if delivered_at*/ "@o.delivered_at:time" /*else*/ /*if updated_at*/ "@o.updated_at:time" /*else*/ "@o.created_at:time" /*end*/ /*end*/
            < timestampadd(microsecond, -1000 * $1, utc_timestamp(6))
        /*if namespace*/ and ($2 is null or "@o.namespace" = $2) /*end*/
) /*else*/ cast(0 * $1 as signed) /*end*/ as delivered, /*if updated_at*/ (
    select count(*)
    from "@outbox" o
    where "@o.status" = '@dead'
        and "@o.updated_at:time" < timestampadd(microsecond, -1000 * $3, utc_timestamp(6))
        /*if namespace*/ and ($2 is null or "@o.namespace" = $2) /*end*/
) /*else*/ cast(0 * $3 as signed) /*end*/ as dead, /*if dedupe*/ (
    select count(*)
    from "@dedupe" d
    where d.expires_at <= utc_timestamp(6)
        and not exists (
            select 1
            from "@outbox" o
            where "@o.id" = d.message_id
                and (
                    (
                        "@o.status" = '@delivered'
                            and "@o.delivered_at:time" < timestampadd(microsecond, -1000 * $1, utc_timestamp(6))
                        or "@o.status" = '@dead'
                            and "@o.updated_at:time" < timestampadd(microsecond, -1000 * $3, utc_timestamp(6))
                    )
                    and ($2 is null or "@o.namespace" = $2)
                ) is not true
        )
) /*else*/ cast(0 as signed) /*end*/ as dedupe
