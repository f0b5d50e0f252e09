-- The topics of the oldest pending messages, those with the most first.
--   ?1 namespace  ?2 how many messages are looked at
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now),
pending as (
    /*if split_index*/
    select * from (
        select "@topic" as topic, "@created_at" as created_at
        from "@outbox" indexed by "@outbox+fresh"
        where "@namespace" = ?1 and "@status" = '@pending' and "@next_attempt_at" <= "@created_at"
        order by "@seq"
        limit ?2
    )
    union all
    select * from (
        select "@topic" as topic, "@created_at" as created_at
        from "@outbox" indexed by "@outbox+waiting"
        where "@namespace" = ?1 and "@status" = '@pending' and "@next_attempt_at" > "@created_at"
        order by "@next_attempt_at"
        limit ?2
    )
    /*else*/
    select "@topic" as topic, "@created_at:time" as created_at
    from "@outbox"
    where "@status" in ('@open') /*if namespace*/ and "@namespace" = /*as namespace*/ ?1 /*end*/ /*end*/
    order by "@order"
    limit ?2
    /*end*/
)
select coalesce(cast(topic as text), '') as topic, count(*) as pending,
    -- Anything may stand there.
    cast(max(clock.now - coalesce(min(case when typeof(created_at) = 'integer' then created_at end), clock.now), 0) as integer)
        as oldest_ms
from pending, clock
group by 1
order by count(*) desc, 1
