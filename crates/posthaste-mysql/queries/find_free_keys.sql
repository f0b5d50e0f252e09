-- Finds dedupe keys whose window is over and whose row is gone. A key and its row are committed together.
--   $1 limit
select d.namespace, d.topic, d.dedupe_key, d.held_by
from "@dedupe" d
where d.expires_at <= utc_timestamp(6) and not exists (select 1 from "@outbox" o where "@o.id" = d.message_id)
order by d.expires_at
limit $1
