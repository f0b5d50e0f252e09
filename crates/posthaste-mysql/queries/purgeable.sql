-- Counts what a purge would remove: delivered rows past their retention, and dedupe keys whose window is over and whose
-- row is gone by then.
--   $1 age in ms
select /*if delivered_at or updated_at or created_at*/ (
    select count(*)
    from "@outbox" o
    where "@o.status" = '@delivered'
        and /*if delivered_at*/ "@o.delivered_at:time" /*else*/ /*if updated_at*/ "@o.updated_at:time" /*else*/ "@o.created_at:time" /*end*/ /*end*/
            < timestampadd(microsecond, -1000 * $1, utc_timestamp(6))
) /*else*/ cast(0 * $1 as signed) /*end*/ /*if dedupe*/ + (
    select count(*)
    from "@dedupe" d
    where d.expires_at <= utc_timestamp(6)
        and not exists (
            select 1
            from "@outbox" o
            where "@o.id" = d.message_id
                and (
                    "@o.status" = '@delivered'
                    and "@o.delivered_at:time" < timestampadd(microsecond, -1000 * $1, utc_timestamp(6))
                ) is not true
        )
) /*end*/ as found
