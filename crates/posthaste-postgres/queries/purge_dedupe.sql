-- Frees dedupe keys whose window is over and whose row is gone.
with chosen as materialized (
    select namespace, topic, dedupe_key
    from "@dedupe" d
    where expires_at <= now() and not exists (select from "@outbox" o where o."@id" = d.message_id)
    order by expires_at
    limit $1
    for update skip locked
)
delete from "@dedupe" where (namespace, topic, dedupe_key) in (select * from chosen)
