-- Messages of the queue that the log does not take, the oldest first, and how many there are.
--   $1 how many to name
select o.id::text as id, f.field, f.bytes, f.allowed, count(*) over () as unfit
from "@schema".outbox o
cross join lateral (
    select s.field, s.bytes, s.allowed
    from (values
        (1, 'topic', octet_length(o.topic), 512), (2, 'ordering_key', octet_length(o.ordering_key), 2048)
    ) s(place, field, bytes, allowed)
    where s.bytes > s.allowed
    order by s.place
    limit 1
) f
where o.namespace = 'default' and o.status in ('pending', 'processing', 'dead')
    and (octet_length(o.topic) > 512 or octet_length(o.ordering_key) > 2048)
order by o.seq
limit $1
