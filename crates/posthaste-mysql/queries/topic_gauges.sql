-- The topics of the oldest pending messages, those with the most first.
--   $1 namespace  $2 how many messages are looked at
select counted.topic as topic, count(*) as pending,
    cast(coalesce(timestampdiff(microsecond, min(counted.oldest), utc_timestamp(6)), 0) as signed) as oldest_us
from (
    select coalesce("@o.topic:text", '') as topic, /*if created_at*/ "@o.created_at:time" /*else*/ null /*end*/ as oldest
    from "@outbox" o
    where "@o.status" in ('@open') /*if namespace*/ and "@o.namespace" = $1 /*end*/
    order by "@o.order"
    limit $2
) counted
group by counted.topic
order by count(*) desc, counted.topic
