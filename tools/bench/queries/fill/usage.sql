--   $1 first row  $2 last row  $3 bytes of payload  $4 keys (the table has none)
insert into modkit_outbox_events (id, namespace, topic, dedupe_key, payload, status, next_attempt_at, created_at)
select gen_random_uuid(), 'default', 'order-events', null,
    (rpad('{"n":' || n || ',"note":"', $3::int - 2, 'x') || '"}')::jsonb, 'pending', now() - interval '1 hour',
    now() - interval '1 hour' + n * interval '1 microsecond'
from generate_series($1::bigint, $2::bigint) as n
where $4::bigint is not null
order by n
