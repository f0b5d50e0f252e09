--   $1 first row  $2 last row  $3 bytes of payload  $4 keys
insert into outbox (event_id, event_type, source, aggregate_type, aggregate_id, payload)
select gen_random_uuid()::text, 'shop.order.created.v1', 'order-service', 'Order', 'key-' || n % $4::bigint,
    (rpad('{"n":' || n || ',"note":"', $3::int - 2, 'x') || '"}')::jsonb
from generate_series($1::bigint, $2::bigint) as n
order by n
