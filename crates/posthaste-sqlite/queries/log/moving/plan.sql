-- What of the queue would be moved to the log, and what stands in the way.
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now)
select
    count(*) filter (where status = 'pending' and attempts = 0 and next_attempt_at <= now) as pending,
    count(*) filter (where status = 'pending' and (attempts > 0 or next_attempt_at > now)) as waiting,
    count(*) filter (where status = 'dead') as dead,
    count(*) filter (where status = 'processing') as processing,
    count(*) filter (where status = 'processing' and locked_until > now) as leased,
    (select count(*) from "@relays" r where r.namespace = 'default' and r.seen_at > clock.now - 15000) as relays
from clock
left join "@queue" q on q.namespace = 'default' and q.status in ('pending', 'processing', 'dead')
