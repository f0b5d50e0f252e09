-- Counts what a purge would remove: delivered rows and dead rows past their retention, and dedupe keys whose window is over
-- and whose row is gone by then.
--   ?1 age of delivered rows in ms  ?2 age of dead rows in ms  ?3 namespace, or null for all
select (
    select count(*)
    from "@outbox" /*if split_index*/ indexed by "@outbox+delivered" /*end*/
    where "@status" = '@delivered'
        and /*if delivered_at*/ "@delivered_at:time" /*else*/ /*if updated_at*/ "@updated_at:time" /*else*/ "@created_at:time" /*end*/ /*end*/
            < cast(unixepoch('subsec') * 1000 as integer) - ?1
        /*if namespace*/ and (?3 is null or "@namespace" = /*as namespace*/ ?3 /*end*/) /*end*/
) as delivered, /*if updated_at*/ (
    select count(*)
    from "@outbox" /*if split_index*/ indexed by "@outbox+dead" /*end*/
    where "@status" = '@dead'
        and "@updated_at:time" < cast(unixepoch('subsec') * 1000 as integer) - ?2
        /*if namespace*/ and (?3 is null or "@namespace" = /*as namespace*/ ?3 /*end*/) /*end*/
) /*else*/ 0 /*end*/ as dead, /*if dedupe*/ (
    select count(*)
    from "@dedupe" e /*if split_index*/ indexed by "@dedupe+expiry" /*end*/
    where e.expires_at <= cast(unixepoch('subsec') * 1000 as integer)
        and not exists (
            select 1
            from "@outbox" o /*if split_index*/ indexed by "@outbox+id" /*end*/
            where "@o.id" = e.message_id
                and (
                    (
                        "@o.status" = '@delivered'
                            and "@o.delivered_at:time" < cast(unixepoch('subsec') * 1000 as integer) - ?1
                        or "@o.status" = '@dead'
                            and "@o.updated_at:time" < cast(unixepoch('subsec') * 1000 as integer) - ?2
                    )
                    and (?3 is null or "@o.namespace" = ?3)
                ) is not true
        )
) /*else*/ 0 /*end*/ as dedupe
