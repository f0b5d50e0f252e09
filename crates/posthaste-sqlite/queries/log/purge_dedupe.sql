-- Frees dedupe keys whose window is over and whose message is gone.
--   ?1 limit
delete from "@dedupe" indexed by "@dedupe+key"
where (namespace, topic, dedupe_key) in (
    select namespace, topic, dedupe_key
    from "@dedupe" e indexed by "@dedupe+expiry"
    where expires_at <= cast(unixepoch('subsec') * 1000 as integer)
        and not exists (select 1 from "@outbox" o where o.id = e.message_id)
        and not exists (select 1 from "@failed" f where f.id = e.message_id)
    order by expires_at
    limit ?1
)
