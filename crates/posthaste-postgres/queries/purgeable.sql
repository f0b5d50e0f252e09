-- Counts what a purge would remove: delivered rows past their retention, and dedupe keys whose window is over and whose
-- row is gone by then.
--   $1 age in ms
select (
    select count(*)
    from "@outbox" o
    where "@o.status" = '@delivered'
        and /*if delivered_at*/ "@o.delivered_at" < /*as delivered_at*/ now() - $1::bigint * interval '1 millisecond' /*end*/
        /*else*/ /*if updated_at*/ "@o.updated_at" < /*as updated_at*/ now() - $1::bigint * interval '1 millisecond' /*end*/
        /*else*/ "@o.created_at" < /*as created_at*/ now() - $1::bigint * interval '1 millisecond' /*end*/ /*end*/ /*end*/
) /*if dedupe*/ + (
    select count(*)
    from "@dedupe" d
    where d.expires_at <= now()
        and not exists (
            select from "@outbox" o
            where "@o.id" = d.message_id
                and (
                    "@o.status" = '@delivered' and "@o.delivered_at" < now() - $1::bigint * interval '1 millisecond'
                ) is not true
        )
) /*end*/ as found
