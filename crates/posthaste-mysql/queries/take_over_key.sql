-- Takes a dedupe key whose window is over, and whose row is gone, from its holder.
--   $1 namespace  $2 topic  $3 key  $4 new message  $5 new holder  $6 window in ms
update "@dedupe"
set message_id = $4, held_by = $5, expires_at = timestampadd(microsecond, $6 * 1000, utc_timestamp(6))
where namespace = $1 and topic = $2 and dedupe_key = $3 and expires_at <= utc_timestamp(6)
    and not exists (select 1 from "@outbox" o where "@o.id" = "@dedupe".message_id)
