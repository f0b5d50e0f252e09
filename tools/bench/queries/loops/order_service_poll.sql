select id, aggregate_id::text, convert_to(payload, 'UTF8') from outbox where status = 'NEW' order by created_at asc limit 10
