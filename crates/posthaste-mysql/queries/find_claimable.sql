-- Finds rows to take, in order and never past an earlier row of the same key. It only reads: what it finds is locked by
-- its primary key and looked at again, so that no scan locks a row that is not taken.
--   $1 namespace  $2 max attempts  $3 whether all topics are served  $4 topics  $5 tenant  $6 limit
--   $7 whether rows of vanished workers are wanted, and else pending ones  $8 whether keys are ordered
--   $9 how many pending rows are looked at  $10 whether any topic blocks  $11 whether dead heads block by default
--   $12 topics with the other policy  $13 among how many pending rows those are chosen
--   $14 whether all lanes are looked at  $15 lanes that are passed over, because nothing of them can be taken
--   $16 rows that are left out, if any; they are never taken, and hold back their keys
--
-- Sums, where one would rather say min and max: MariaDB works these out anew for every row of a frame, so that a key
-- with many rows would take the square of the time. For the same reason rows without a key are not a lane together.
select id, topic, ordering_key
from (
    select
        id, topic, ordering_key, "@x.order:ref", case when $7 then expired else due end as claimable,
        -- All earlier rows of the key go along. A retry goes alone: if it fails again, nothing after it is touched.
        coalesce(sum(case when $7 then not expired else waits or not due end) over (
            partition by topic, ordering_key, keyless order by "@x.order:ref" rows between unbounded preceding and 1 preceding
        ), 0) = 0 as unbroken,
        -- The key is in somebody's hands, also what lies before the row that is.
        sum(live) over (partition by topic, ordering_key, keyless) > 0 as in_flight,
        -- Beyond the pending rows that are looked at there may be earlier ones of the key.
        coalesce(sum(pending) over (
            order by "@x.order:ref" rows between unbounded preceding and 1 preceding
        ), 0) as pending_before
    from (
        (
            select
                id, topic, ordering_key, case when ordering_key is null then id end as keyless, "@w.order:ref",
                1 as pending, 0 as live, 0 as expired, due, waits
            from (
                select
                    "@o.id:text" as id, "@o.topic:text" as topic, "@o.ordering_key:text" as ordering_key, "@o.order:as",
                    coalesce("@o.id" not in ($16), 1)
                        /*if attempts*/ and coalesce("@o.attempts", 0) < /*put o.max_attempts*/ /*end*/
                        /*if next_attempt_at*/ and coalesce("@o.next_attempt_at:time" <= utc_timestamp(6), 1) /*end*/ as due,
                    /*if next_attempt_at and created_at*/ coalesce("@o.next_attempt_at:time" > "@o.created_at:time", 0)
                        /*else*/ /*if attempts*/ coalesce("@o.attempts", 0) > 0 /*else*/ 0 /*end*/ /*end*/ as waits
                from "@outbox" o
                where "@o.status" in ('@open')
                    /*put o.and_in_scope*/
                order by "@o.order"
                limit $13
            ) w
            where $14 or ordering_key is null or (coalesce(topic, ''), ordering_key) not in ($15)
            order by "@w.order:ref"
            limit $9
        )
        /*if lease_token*/ union all
        (
            select
                "@o.id:text", "@o.topic:text", "@o.ordering_key:text", case when "@o.ordering_key:text" is null then "@o.id:text" end,
                "@o.order:as",
                0,
                /*if locked_until*/ coalesce("@o.locked_until:time" >= utc_timestamp(6), 1) /*else*/ 1 /*end*/,
                /*if locked_until*/ "@o.locked_until:time" < utc_timestamp(6) /*else*/ 0 /*end*/
                    and coalesce("@o.attempts", 0) < /*put o.max_attempts*/
                    and coalesce("@o.id" not in ($16), 1)
                    /*if topic*/ and ($3 or "@o.topic" in ($4)) /*end*/
                    /*if tenant*/ and ($5 is null or coalesce("@o.tenant" = $5, 0)) /*end*/,
                0, 0
            from "@outbox" o
            where "@o.status" = '@processing'
                /*if namespace*/ and "@o.namespace" = $1 /*end*/
        ) /*end*/
        union all
        (
            -- A dead head that blocks is a row that never passes.
            select "@o.id:text", "@o.topic:text", "@o.ordering_key:text", null, "@o.order:as", 0, 0, 0, 0, 0
            from "@outbox" o
            where $10 and "@o.status" = '@dead' and "@o.ordering_key:text" is not null
                /*if namespace*/ and "@o.namespace" = $1 /*end*/
                /*if topic*/ and ("@o.topic" in ($12)) <> $11 /*else*/ and $11 /*end*/
        )
    ) x
) y
where claimable and (not $8 or ordering_key is null or (unbroken and not in_flight and pending_before < $9))
order by "@y.order:ref"
limit $6
