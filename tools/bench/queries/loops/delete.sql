-- $1 limit
with gone as (
    delete from posthaste.outbox
    where id in (
        select id from posthaste.outbox
        where namespace = 'default' and status = 'pending' and next_attempt_at <= created_at
        order by seq
        limit $1
        for update skip locked
    )
    returning id, seq, ordering_key, payload
)
select id, ordering_key, payload from gone order by seq
