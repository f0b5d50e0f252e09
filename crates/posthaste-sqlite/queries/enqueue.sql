-- Writes rows in the caller's transaction. A dedupe key that is taken, or an id that exists, writes nothing; the ids
-- that come back were written.
--   ?1 rows as a JSON array  ?2 their payloads, one behind the other
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now),
input as (
    select key as place, value ->> 'id' as id, value ->> 'namespace' as namespace, value ->> 'topic' as topic,
        value ->> 'ordering_key' as ordering_key, value ->> 'tenant' as tenant, value ->> 'dedupe_key' as dedupe_key,
        value ->> 'event_type' as event_type, value ->> 'source' as source,
        value ->> 'aggregate_type' as aggregate_type, value ->> 'aggregate_id' as aggregate_id,
        value ->> 'content_type' as content_type, value ->> 'headers' as headers, value ->> 'hash' as hash,
        value ->> 'not_before' as not_before, value ->> 'start' as start, value ->> 'bytes' as bytes
    from json_each(?1)
)
insert into "@outbox" (
    "@id", "@namespace", "@topic", "@ordering_key", "@tenant", "@dedupe_key", "@event_type", "@source",
    "@aggregate_type", "@aggregate_id", "@content_type", "@payload", "@headers", "@content_hash", "@status",
    "@next_attempt_at", "@created_at", "@updated_at"
)
select
    i.id, i.namespace, i.topic, i.ordering_key, i.tenant, i.dedupe_key, i.event_type, i.source,
    i.aggregate_type, i.aggregate_id, i.content_type,
    coalesce(substr(?2, i.start, i.bytes), x''), -- substr gives null for an empty blob
    i.headers, unhex(i.hash), '@pending', max(clock.now, coalesce(i.not_before, 0)), clock.now, clock.now
from input i, clock
where i.dedupe_key is null or not exists (
    select 1
    from "@dedupe" d
    where d.namespace = i.namespace and d.topic = i.topic and d.dedupe_key = i.dedupe_key
        and (d.expires_at > clock.now or exists (select 1 from "@outbox" o where o."@id" = d.message_id))
)
order by i.place
on conflict ("@id") do nothing
returning "@id" as id
