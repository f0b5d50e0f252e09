-- A trigger gives each row its shard and its number, as it does for producers in other languages.
--   $1 first row  $2 last row  $3 bytes of payload  $4 keys
insert into posthaste.log (id, topic, ordering_key, event_type, source, aggregate_type, aggregate_id, content_type, payload)
select gen_random_uuid(), 'order-events', 'key-' || n % $4::bigint, 'shop.order.created.v1', 'order-service', 'Order',
    'key-' || n % $4::bigint, 'application/json',
    convert_to(rpad('{"n":' || n || ',"note":"', $3::int - 2, 'x') || '"}', 'UTF8')
from generate_series($1::bigint, $2::bigint) as n
order by n
