-- What one would write by hand: take the oldest rows that nobody has.
--   $1 limit  $2 token
with taken as (
    update posthaste.outbox
    set status = 'processing', attempts = attempts + 1, lease_token = $2, locked_until = now() + interval '30 seconds',
        updated_at = now()
    where id in (
        select id from posthaste.outbox
        where namespace = 'default' and status = 'pending' and next_attempt_at <= created_at
        order by seq
        limit $1
        for update skip locked
    )
    returning id, seq, ordering_key, payload
)
select id, ordering_key, payload from taken order by seq
