-- Writes a backlog as producers would have left it: ids that grow with time, and the hash that the relay verifies.
--   $1 rows  $2 bytes of payload  $3 keys (0: none)  $4 per cent of the rows that belong to the first key
insert into posthaste.outbox (id, namespace, topic, ordering_key, payload, content_hash)
select id, 'default', 'bench-events',
    case
        when $3 = 0 then null
        when n % 100 < $4 then 'key-0'
        else 'key-' || n % $3
    end,
    body, sha256(convert_to(id::text || '||', 'UTF8') || body)
from (
    select n,
        encode(overlay(uuid_send(gen_random_uuid()) placing substring(int8send(1700000000000 + n / 10) from 3)
            from 1 for 6), 'hex')::uuid as id,
        convert_to(rpad('{"order":' || n || ',"note":"', $2 - 2, 'x') || '"}', 'UTF8') as body
    from generate_series(1::bigint, $1) as n
) as new_rows
order by n
