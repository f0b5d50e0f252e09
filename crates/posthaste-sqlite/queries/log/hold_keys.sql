-- Takes the dedupe keys of rows that were just written, also where an earlier holder's time is over.
--   ?1 rows as a JSON array  ?2 ids of those that were written  ?3 dedupe window in ms
insert into "@dedupe" (namespace, topic, dedupe_key, message_id, expires_at)
select coalesce(value ->> 'namespace', ''), value ->> 'topic', value ->> 'dedupe_key', value ->> 'id',
    cast(unixepoch('subsec') * 1000 as integer) + ?3
from json_each(?1)
where value ->> 'dedupe_key' is not null and value ->> 'id' in (select value from json_each(?2))
on conflict (namespace, topic, dedupe_key)
    do update set message_id = excluded.message_id, expires_at = excluded.expires_at
