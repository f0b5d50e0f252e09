--   $1 first row  $2 last row  $3 bytes of payload  $4 keys
insert into outbox_events (id, aggregate_type, aggregate_id, event_type, payload, occurred_at, next_attempt_at)
select gen_random_uuid(), 'Order', md5('key-' || n % $4::bigint)::uuid, 'shop.order.created.v1',
    (rpad('{"n":' || n || ',"note":"', $3::int - 2, 'x') || '"}')::jsonb,
    now() - interval '1 hour' + n * interval '1 microsecond', now() - interval '1 hour' + n * interval '1 microsecond'
from generate_series($1::bigint, $2::bigint) as n
order by n
