-- $1 ids
update posthaste.outbox
set status = 'delivered', attempts = attempts + 1, delivered_at = now(), updated_at = now()
where id = any ($1)
