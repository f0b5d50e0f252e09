--   $1 first row  $2 last row  $3 bytes of payload  $4 keys
insert into events (event_id, aggregate_id, payload)
select gen_random_uuid(), 'key-' || n % $4::bigint,
    convert_to(rpad('{"n":' || n || ',"note":"', $3::int - 2, 'x') || '"}', 'UTF8')
from generate_series($1::bigint, $2::bigint) as n
order by n
