-- Counts what a purge would remove: delivered rows past their retention, and dedupe keys whose window is over and whose
-- row is gone by then.
--   ?1 retention in ms
select (
    select count(*)
    from "@outbox" /*if split_index*/ indexed by "@outbox+delivered" /*end*/
    where "@status" = '@delivered'
        and /*if delivered_at*/ "@delivered_at:time" /*else*/ /*if updated_at*/ "@updated_at:time" /*else*/ "@created_at:time" /*end*/ /*end*/
            < cast(unixepoch('subsec') * 1000 as integer) - ?1
) /*if dedupe*/ + (
    select count(*)
    from "@dedupe" e /*if split_index*/ indexed by "@dedupe+expiry" /*end*/
    where e.expires_at <= cast(unixepoch('subsec') * 1000 as integer)
        and not exists (
            select 1
            from "@outbox" o /*if split_index*/ indexed by "@outbox+id" /*end*/
            where "@o.id" = e.message_id
                and (
                    "@o.status" = '@delivered'
                    and "@o.delivered_at:time" < cast(unixepoch('subsec') * 1000 as integer) - ?1
                ) is not true
        )
) /*end*/ as found
