-- Takes rows in the table's order, never past an earlier row of the same key. Runs under the claim lock.
--   $1 namespace  $2 max attempts  $3 topics  $4 tenant  $5 limit  $6 max bytes  $7 proof of the claim  $8 lease in ms
--   $9 whether rows of vanished workers are wanted, and else pending ones  $10 how many pending rows are looked at
--   $11 whether any topic blocks  $12 whether dead heads block by default  $13 topics with the other policy
--   $14 rows that are left out; they are never taken, and hold back their keys  $15 worker, where the table says who has a row
--
-- The first rows in the table's order are enough to judge those among them: all earlier rows of their keys are there too.
with seen as materialized (
    (
        select "@o.id" as id, "@o.topic:text" as topic, "@o.ordering_key:text" as ordering_key, "@o.order:as",
            true as pending, false as live, false as expired,
            coalesce("@o.attempts", 0) < /*put o.max_attempts*/
                and "@o.id" not in (select unnest($14::text[]::/*type id*/ uuid /*end*/[]))
                /*put o.and_due*/ as due,
            coalesce("@o.attempts", 0) > 0 /*if next_attempt_at and created_at*/
                or coalesce("@o.next_attempt_at:time" > "@o.created_at:time", false) /*end*/ as waits
        from "@outbox" o
        where "@o.status" in ('@open')
            and /*put o.in_scope*/
        order by "@o.order"
        limit $10
    )
    union all
    select "@o.id", "@o.topic:text", "@o.ordering_key:text", "@o.order", false,
        /*if locked_until*/ coalesce("@o.locked_until" >= /*as locked_until*/ now() /*end*/, false) /*else*/ true /*end*/,
        /*if locked_until*/ coalesce("@o.locked_until" < /*as locked_until*/ now() /*end*/, true) /*else*/ false /*end*/
            and coalesce("@o.attempts", 0) < /*put o.max_attempts*/
            and "@o.id" not in (select unnest($14::text[]::/*type id*/ uuid /*end*/[]))
            /*if topic*/ and ($3::text[] is null or "@o.topic:text" = any ($3)) /*end*/
            /*if tenant*/ and ($4::text is null or "@o.tenant:text" = $4) /*end*/,
        false, false
    from "@outbox" o
    where "@o.status" = '@processing'
        /*if namespace*/ and "@o.namespace:text" = $1 /*end*/
    union all
    -- A dead head that blocks is a row that is never taken.
    select "@o.id", "@o.topic:text", "@o.ordering_key:text", "@o.order", false, false, false, false, false
    from "@outbox" o
    where $11::boolean and "@o.status" = '@dead' and "@o.ordering_key" is not null
        /*if namespace*/ and "@o.namespace:text" = $1 /*end*/
        and /*if topic*/ ("@o.topic:text" = any ($13::text[])) <> $12::boolean
            /*else*/ $12::boolean and $13::text[] is not null /*end*/
),
candidates as materialized (
    select id, topic, ordering_key, "@m.order:ref"
    from (
        select id, topic, ordering_key, "@x.order:ref", case when $9::boolean then expired else due end as claimable,
            -- All earlier rows of the key go along. A retry goes alone: if it fails again, nothing after it is
            -- touched.
            coalesce(bool_and(case when $9 then expired else due and not waits end) over (
                partition by topic, ordering_key order by "@x.order:ref" rows between unbounded preceding and 1 preceding
            ), true) as unbroken,
            -- The key is in somebody's hands, also what lies before the row that is.
            bool_or(live) over (partition by topic, ordering_key) as in_flight,
            -- Beyond the pending rows that are looked at there may be earlier ones of the key.
            count(*) filter (where pending) over (
                order by "@x.order:ref" rows between unbounded preceding and 1 preceding
            ) as pending_before
        from seen x
    ) m
    where claimable and (ordering_key is null or (unbroken and not in_flight and pending_before < $10))
    order by "@m.order:ref"
    limit $5
),
locked as materialized (
    select "@o.id" as id, coalesce(octet_length("@o.payload:bytes"), 0) as bytes
    from "@outbox" o
    where "@o.id" = any (array(select id from candidates))
        and case when $9 then "@o.status" = '@processing'
                /*if locked_until*/ and coalesce("@o.locked_until" < /*as locked_until*/ now() /*end*/, true) /*end*/
            else "@o.status" in ('@open') end
    for update skip locked
),
picked as (
    select id
    from (
        select c.id, c.ordering_key, l.bytes, l.id is not null as ours,
            -- A row that somebody else has locked holds back what follows it in its key.
            bool_and(l.id is not null) over (
                partition by c.topic, c.ordering_key order by "@c.order:ref" rows unbounded preceding
            ) as unbroken,
            sum(l.bytes) over (order by "@c.order:ref" rows unbounded preceding) - l.bytes as bytes_before
        from candidates c
        left join locked l on l.id = c.id
    ) measured
    where ours and (unbroken or ordering_key is null) and (bytes_before = 0 or bytes_before + bytes <= $6)
)
/*list picked*/
, taken as (
    update "@outbox" o
    set "@status" = '@processing', "@attempts" = coalesce("@o.attempts", 0) + 1,
        "@lease_token" = $7::text::/*type lease_token*/ uuid /*end*/
        /*if locked_by*/ , "@locked_by" = $15::text::/*type locked_by*/ uuid /*end*/ /*end*/
        /*if locked_until*/ , "@locked_until" = /*as locked_until*/ now() + $8::bigint * interval '1 millisecond' /*end*/ /*end*/
        /*if locked_at*/ , "@locked_at" = /*as locked_at*/ now() /*end*/ /*end*/
        /*if version*/ , "@version" = coalesce("@o.version", 0) + 1 /*end*/
        /*if updated_at*/ , "@updated_at" = /*as updated_at*/ now() /*end*/ /*end*/
    where "@o.id" = any (array(select id from picked)) and $8::bigint is not null
    returning "@o.order:as", "@o.seq:int"::bigint as seq, "@o.message",
        "@o.attempts:int"::bigint as attempts, "@o.max_attempts:int"::bigint as max_attempts,
        /*if version*/ coalesce("@o.version", 0)::bigint /*else*/ null::bigint /*end*/ as version, "@o.created_at:time" as created_at
)
-- One row at least: how many pending rows there were to be looked at.
select t.*, s.looked_at
from (select count(*) as looked_at from seen where pending) s
left join taken t on true
order by "@t.order:ref"
