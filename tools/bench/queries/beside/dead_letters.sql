-- A thousand messages that were given up, of keys that no other message has.
insert into posthaste.log_failed (shard, log_id, event_id, topic, ordering_key, payload, attempts, last_error, died_at)
select 0, -n, gen_random_uuid(), 'order-events', 'dead-' || n, convert_to(rpad('{"n":-1,"note":"', 298, 'x') || '"}', 'UTF8'),
    5, 'refused', now()
from generate_series(1, 1000) n
