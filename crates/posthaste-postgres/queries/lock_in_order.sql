-- Locks due rows in the table's order until the end of the transaction, never past an earlier row of the same key. Runs
-- under the claim lock, which is held as long.
--   $1 namespace  $2 max attempts  $3 topics  $4 tenant  $5 limit  $6 max bytes  $7 how many pending rows are looked at
--   $8 whether any topic blocks  $9 whether dead heads block by default  $10 topics with the other policy
--
-- The first rows in the table's order are enough to judge those among them: all earlier rows of their keys are there too.
with seen as materialized (
    (
        select "@o.id" as id, "@o.topic:text" as topic, "@o.ordering_key:text" as ordering_key, "@o.order:as",
            /*if attempts*/ coalesce("@o.attempts", 0) < /*put o.max_attempts*/ /*else*/ $2::integer > 0 /*end*/
                /*put o.and_due*/ as due,
            coalesce("@o.attempts:int", 0) > 0 /*if next_attempt_at and created_at*/
                or coalesce("@o.next_attempt_at:time" > "@o.created_at:time", false) /*end*/ as waits, true as pending
        from "@outbox" o
        where "@o.status" in ('@open')
            and /*put o.in_scope*/
        order by "@o.order"
        limit $7
    )
    union all
    -- A dead head that blocks is a row that is never taken.
    select "@o.id", "@o.topic:text", "@o.ordering_key:text", "@o.order", false, false, false
    from "@outbox" o
    where $8::boolean and "@o.status" = '@dead' and "@o.ordering_key" is not null
        /*if namespace*/ and "@o.namespace:text" = $1 /*end*/
        and /*if topic*/ ("@o.topic:text" = any ($10::text[])) <> $9::boolean
            /*else*/ $9::boolean and $10::text[] is not null /*end*/
),
candidates as materialized (
    select id, topic, ordering_key, "@m.order:ref"
    from (
        select id, topic, ordering_key, "@x.order:ref", due,
            -- All earlier rows of the key go along. A retry goes alone: if it fails again, nothing after it is
            -- touched.
            coalesce(bool_and(due and not waits) over (
                partition by topic, ordering_key order by "@x.order:ref" rows between unbounded preceding and 1 preceding
            ), true) as unbroken
        from seen x
    ) m
    where due and (ordering_key is null or unbroken)
    order by "@m.order:ref"
    limit $5
),
locked as materialized (
    select o.*, coalesce(octet_length("@o.payload:bytes"), 0) as posthaste_bytes
    from "@outbox" o
    where "@o.id" = any (array(select id from candidates)) and "@o.status" in ('@open')
    for update skip locked
),
picked as (
    select id
    from (
        select c.id, c.ordering_key, l.posthaste_bytes as bytes, "@l.id" is not null as ours,
            -- A row that somebody else has locked holds back what follows it in its key.
            bool_and("@l.id" is not null) over (
                partition by c.topic, c.ordering_key order by "@c.order:ref" rows unbounded preceding
            ) as unbroken,
            sum(l.posthaste_bytes) over (order by "@c.order:ref" rows unbounded preceding) - l.posthaste_bytes
                as bytes_before
        from candidates c
        left join locked l on "@l.id" = c.id
    ) measured
    where ours and (unbroken or ordering_key is null) and (bytes_before = 0 or bytes_before + bytes <= $6)
)
select "@o.seq:int"::bigint as seq, "@o.message",
        -- The attempt that is made now is counted when its verdict is written.
        coalesce("@o.attempts:int", 0)::bigint + 1 as attempts, "@o.max_attempts:int"::bigint as max_attempts,
        /*if version*/ coalesce("@o.version", 0)::bigint /*else*/ null::bigint /*end*/ as version, "@o.created_at:time" as created_at,
        -- One row at least: how many pending rows there were to be looked at.
        s.looked_at
from (select count(*) as looked_at from seen where pending) s
left join locked o on "@o.id" in (select id from picked)
order by "@o.order"
