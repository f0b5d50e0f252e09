-- Moves what waits, was tried or is dead beside the log, each behind the fresh messages that stood before it, but for what the log
-- has already.
--   ?1 what is due at this time was fresh  ?2 the name of the log's table
with queue as (
    select *, status <> 'dead' and attempts = 0 and next_attempt_at <= ?1 as fresh
    from "@queue" q
    where namespace = 'default' and status in ('pending', 'processing', 'dead')
        and not exists (select 1 from "@outbox" o where o.id = q.id)
        and not exists (select 1 from "@failed" f where f.id = q.id)
),
placed as (
    select *, sum(fresh) over (order by seq) as fresh_before from queue
),
log as (select coalesce((select max(seq) from sqlite_sequence where name = ?2), 0) as last)
insert into "@failed" (
    log_id, id, topic, ordering_key, tenant, dedupe_key, event_type, source, aggregate_type, aggregate_id, content_type, payload, headers,
    content_hash, attempts, next_attempt_at, last_error, created_at, died_at
)
select log.last + fresh_before, id, topic, ordering_key, tenant, dedupe_key, event_type, source, aggregate_type, aggregate_id,
    content_type, payload, nullif(headers, '{}'), content_hash, attempts, next_attempt_at, last_error, created_at,
    iif(status = 'dead', updated_at, null)
from placed
cross join log
where not fresh
order by placed.seq
