-- Why a row was not written: its id was there, or its dedupe key is held; then the holder's id comes back. Asks for no
-- time, because the answer must be the one that the insert acted on.
--   ?1 rows as a JSON array
select i.key as place, d.message_id as id, false as is_new
from json_each(?1) i
cross join "@dedupe" d indexed by "@dedupe+key" on d.namespace = coalesce(i.value ->> 'namespace', '')
    and d.topic = i.value ->> 'topic' and d.dedupe_key = i.value ->> 'dedupe_key'
where not exists (select 1 from "@outbox" o where o.id = i.value ->> 'id')
    and not exists (select 1 from "@failed" f where f.id = i.value ->> 'id')
