-- What of the queue would be moved to the log, and what stands in the way.
select
    count(*) filter (where o.status = 'pending' and o.attempts = 0 and o.next_attempt_at <= now()) as pending,
    count(*) filter (where o.status = 'pending' and (o.attempts > 0 or o.next_attempt_at > now())) as waiting,
    count(*) filter (where o.status = 'dead') as dead,
    count(*) filter (where o.status = 'processing') as processing,
    count(*) filter (where o.status = 'processing' and o.locked_until > now()) as leased,
    (select count(*) from "@schema".relays r
        where r.namespace = 'default' and r.seen_at > now() - interval '15 s') as relays,
    exists (select from pg_trigger
        where tgrelid = '@schema.outbox'::regclass and tgname = 'log_refuse_claim') as is_fenced,
    exists (select from pg_trigger
        where tgrelid = '@schema.outbox'::regclass and tgname = 'log_redirect') as is_redirected
from "@schema".outbox o
where o.namespace = 'default' and o.status in ('pending', 'processing', 'dead')
