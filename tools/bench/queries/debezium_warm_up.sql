-- Rows that do not count. Java is slow at first.
--   $1 rows  $2 bytes of payload  $3 keys
insert into outbox (id, aggregatetype, aggregateid, type, payload)
select gen_random_uuid(), 'Order', 'key-' || n % $3::bigint, 'shop.order.created.v1', rpad('{"n":0,"note":"', $2::int - 2, 'x') || '"}'
from generate_series(1, $1::bigint) as n
