-- $1 ids  $2 token
update posthaste.outbox
set status = 'delivered', delivered_at = now(), lease_token = null, locked_until = null, updated_at = now()
where id = any ($1) and lease_token = $2
