-- Who holds dedupe keys. Locking, because a plain read may be one of the past; each by its place in the index, because to
-- lock what a scan passes would hold up everybody else.
--   $1 namespaces, topics and keys
select d.namespace, d.topic, d.dedupe_key, d.message_id, d.held_by, d.expires_at <= utc_timestamp(6) as expired
from "@dedupe" d
where (d.namespace, d.topic, d.dedupe_key) in ($1)
for update
