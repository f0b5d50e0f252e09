-- A thousand messages for tomorrow, of keys that no other message has.
insert into posthaste.log_failed (shard, log_id, event_id, topic, ordering_key, payload, next_attempt_at)
select 0, -n, gen_random_uuid(), 'order-events', 'waits-' || n, convert_to(rpad('{"n":-1,"note":"', 298, 'x') || '"}', 'UTF8'),
    now() + interval '1 day'
from generate_series(1, 1000) n
