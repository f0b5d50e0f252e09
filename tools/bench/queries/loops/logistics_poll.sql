select id, aggregate_id::text, convert_to(payload::text, 'UTF8') from outbox_events
where status = 'PENDING' and next_attempt_at <= now()
order by next_attempt_at asc
limit 50
for update skip locked
