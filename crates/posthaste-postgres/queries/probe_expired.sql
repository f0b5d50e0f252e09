-- What crashed workers left behind: the most attempts among rows that may be tried again, and how many may not.
select
    max("@o.attempts") filter (where "@o.attempts" < /*put o.max_attempts*/)::bigint as most_tried,
    count(*) filter (where "@o.attempts" >= /*put o.max_attempts*/) as exhausted
from "@outbox" o
where /*if namespace*/ "@o.namespace:text" = $1 /*else*/ $1::text is not null /*end*/
    and "@o.status" = '@processing'
    and /*if split_index*/ "@o.locked_until" < now()
        /*else*/ coalesce("@o.locked_until" < /*as locked_until*/ now() /*end*/, true) /*end*/
    and /*if topic*/ ($3::text[] is null or "@o.topic:text" = any ($3)) /*else*/ $3::text[] is null /*end*/
    and /*if tenant*/ ($4::text is null or "@o.tenant:text" = $4) /*else*/ $4::text is null /*end*/
