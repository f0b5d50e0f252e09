-- Writes rows as producers would have left them: ids that grow with time, and the hash that the relay verifies.
--   $1 first row  $2 last row  $3 bytes of payload  $4 keys
insert into posthaste.outbox (id, namespace, topic, ordering_key, event_type, source, aggregate_type, aggregate_id, payload,
    content_hash)
select id, 'default', 'order-events', key, 'shop.order.created.v1', 'order-service', 'Order', key, body,
    sha256(convert_to(id::text || '|shop.order.created.v1|', 'UTF8') || body)
from (
    select n, 'key-' || n % $4::bigint as key,
        encode(overlay(uuid_send(gen_random_uuid()) placing substring(int8send(1700000000000 + n / 10) from 3)
            from 1 for 6), 'hex')::uuid as id,
        convert_to(rpad('{"n":' || n || ',"note":"', $3::int - 2, 'x') || '"}', 'UTF8') as body
    from generate_series($1::bigint, $2::bigint) as n
) as new_rows
order by n
