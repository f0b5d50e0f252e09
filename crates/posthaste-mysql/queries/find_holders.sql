-- Who holds dedupe keys. Locking, because a plain read may be one of the past; each by its place in the index, because to
-- lock what a scan passes would hold up everybody else.
--   $1 namespaces, topics and keys  $2 who asks
--
-- Returns for each key whether its window is over, the message that holds it with the key behind it in hexadecimal digits, and
-- whether it is held by who asks.
select d.expires_at <= utc_timestamp(6) as place,
    concat_ws(' ', d.message_id, hex(d.namespace), hex(d.topic), hex(d.dedupe_key)) as id, d.held_by = $2 as is_new
from "@dedupe" d
where (d.namespace, d.topic, d.dedupe_key) in ($1)
for update
