-- The oldest rows, for a loop that is alone with them.
--   $1 limit
select id, topic, ordering_key, payload from posthaste.outbox
where namespace = 'default' and status = 'pending' and next_attempt_at <= created_at
order by seq
limit $1
