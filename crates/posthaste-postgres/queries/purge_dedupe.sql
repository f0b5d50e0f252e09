-- Frees dedupe keys whose window is over and whose row is gone.
delete from "@dedupe" d
using (
    select namespace, topic, dedupe_key
    from "@dedupe" e
    where expires_at <= now() and not exists (select from "@outbox" o where o."@id" = e.message_id)
    order by expires_at
    limit $1
    for update skip locked
) expired
where (d.namespace, d.topic, d.dedupe_key) = (expired.namespace, expired.topic, expired.dedupe_key)
