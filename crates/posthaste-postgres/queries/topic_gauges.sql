-- The topics of the oldest pending messages, those with the most first.
--   $1 namespace  $2 how many messages are looked at
with pending as (
    /*if split_index*/
    (
        select "@topic" as topic, "@created_at" as created_at
        from "@outbox"
        where "@namespace" = $1 and "@status" = '@pending' and "@next_attempt_at" <= "@created_at"
        order by "@seq"
        limit $2
    )
    union all
    (
        select "@topic" as topic, "@created_at" as created_at
        from "@outbox"
        where "@namespace" = $1 and "@status" = '@pending' and "@next_attempt_at" > "@created_at"
        order by "@next_attempt_at"
        limit $2
    )
    /*else*/
    select "@o.topic:text" as topic, "@o.created_at:time" as created_at
    from "@outbox" o
    where "@o.status" in ('@open') and /*if namespace*/ "@o.namespace:text" = $1 /*else*/ $1::text is not null /*end*/
    order by "@o.order"
    limit $2
    /*end*/
)
select coalesce(topic, '') as topic, count(*) as pending,
    case when isfinite(min(created_at)) then extract(epoch from now() - min(created_at)) else 0 end::float8 as oldest_seconds
from pending
group by 1
order by count(*) desc, 1
