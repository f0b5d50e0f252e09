-- A dead letter that was kept elsewhere and whose row is gone is there again, dead.
--   ?1 [id, topic, ordering key, tenant, event type, source, aggregate type, aggregate id, content type, headers, attempts, error,
--   dedupe key, hash in hexadecimal digits]
--   ?2 payload  ?3 when it was enqueued  ?4 when it died  ?5 the name of the log's table
insert into "@failed" (
    log_id, id, topic, ordering_key, tenant, dedupe_key, event_type, source, aggregate_type, aggregate_id, content_type, payload, headers,
    content_hash, attempts, next_attempt_at, last_error, created_at, died_at
)
select coalesce((select seq from sqlite_sequence where name = ?5), 0), ?1 ->> 0, ?1 ->> 1, ?1 ->> 2, ?1 ->> 3, ?1 ->> 12, ?1 ->> 4, ?1 ->> 5, ?1 ->> 6,
    ?1 ->> 7, ?1 ->> 8, ?2, ?1 ->> 9, unhex(?1 ->> 13), ?1 ->> 10, ?3, ?1 ->> 11, ?3, ?4
where not exists (select 1 from "@outbox" o where o.id = ?1 ->> 0)
on conflict (id) do nothing
