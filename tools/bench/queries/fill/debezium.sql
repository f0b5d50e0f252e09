--   $1 first row  $2 last row  $3 bytes of payload  $4 keys
insert into outbox (id, aggregatetype, aggregateid, type, payload)
select gen_random_uuid(), 'Order', 'key-' || n % $4::bigint, 'shop.order.created.v1',
    rpad('{"n":' || n || ',"note":"', $3::int - 2, 'x') || '"}'
from generate_series($1::bigint, $2::bigint) as n
order by n
