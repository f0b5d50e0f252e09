-- Writes messages that have a time of their own beside the log, where they wait; what follows them in their keys waits behind
-- them. The ids that come back were written.
--   ?1 rows as a JSON array  ?2 their payloads, one behind the other  ?3 the name of the log's table
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now)
insert into "@failed" (
    log_id, id, topic, ordering_key, tenant, dedupe_key, event_type, source, aggregate_type, aggregate_id, content_type, payload, headers,
    content_hash, next_attempt_at, created_at
)
select coalesce((select seq from sqlite_sequence where name = ?3), 0), value ->> 'id', value ->> 'topic', value ->> 'ordering_key',
    value ->> 'tenant', value ->> 'dedupe_key', value ->> 'event_type', value ->> 'source', value ->> 'aggregate_type', value ->> 'aggregate_id',
    value ->> 'content_type',
    cast(coalesce(substr(?2, value ->> 'start', value ->> 'bytes'), x'') as blob),
    nullif(value ->> 'headers', '{}'), unhex(value ->> 'hash'), max(clock.now, value ->> 'not_before'), clock.now
from json_each(?1)
cross join clock
where value ->> 'not_before' is not null
    and not exists (select 1 from "@outbox" o where o.id = value ->> 'id')
    and (value ->> 'dedupe_key' is null or not exists (
        select 1
        from "@dedupe" d
        where d.namespace = coalesce(value ->> 'namespace', '') and d.topic = value ->> 'topic'
            and d.dedupe_key = value ->> 'dedupe_key'
            and (d.expires_at > clock.now or exists (select 1 from "@outbox" o where o.id = d.message_id)
                or exists (select 1 from "@failed" f where f.id = d.message_id))
    ))
order by key
on conflict (id) do nothing
returning 0 as place, id, true as is_new
