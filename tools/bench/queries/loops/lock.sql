-- $1 limit
select id, ordering_key, payload from posthaste.outbox
where namespace = 'default' and status = 'pending' and next_attempt_at <= created_at
order by seq
limit $1
for update skip locked
