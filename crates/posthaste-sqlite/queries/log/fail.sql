-- Writes rows of the log to the table of failures, in the log's order; one that is there already is left as it is.
--   ?1 [[seq, attempts, error, wait in ms, whether it is dead], …]
insert into "@failed" (
    log_id, id, topic, ordering_key, tenant, dedupe_key, event_type, source, aggregate_type, aggregate_id, content_type, payload, headers,
    content_hash, attempts, next_attempt_at, last_error, created_at, died_at
)
select o.seq, o.id, o.topic, o.ordering_key, o.tenant, o.dedupe_key, o.event_type, o.source, o.aggregate_type, o.aggregate_id,
    o.content_type, o.payload, o.headers, o.content_hash, n.value ->> 1,
    cast(unixepoch('subsec') * 1000 as integer) + (n.value ->> 3), n.value ->> 2, o.created_at,
    iif(n.value ->> 4, cast(unixepoch('subsec') * 1000 as integer), null)
from json_each(?1) n
join "@outbox" o on o.seq = n.value ->> 0
where true -- else `on` would be taken for that of a join
order by o.seq
on conflict (id) do nothing
