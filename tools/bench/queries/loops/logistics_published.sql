-- $1 id
update outbox_events set status = 'PUBLISHED', processed_at = now() where id = $1
