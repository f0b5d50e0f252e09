-- Takes rows in the table's order, never past an earlier row of the same key. It looks at the first rows that are open: all
-- earlier ones of a key are among them. Rows of vanished workers and pending ones are taken by calls of their own.
--   ?1 namespace  ?2 max attempts  ?3 topics  ?4 tenant  ?5 limit  ?6 max bytes  ?7 worker  ?8 fence  ?9 lease in ms
--   ?10 whether keys are ordered  ?11 whether dead heads block by default  ?12 topics with the other policy
--   ?13 how many open rows are looked at  ?14 whether rows of vanished workers are wanted, and else pending ones
--   ?15 by how many ms the time of creation may be too early, as its column keeps it
--   ?16 rows that are left out, as a JSON array; they are never taken, and hold back their keys
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now),
seen as (
    select * from (
        select
            "@o.id" as id, "@o.topic:text" as topic, "@o.ordering_key:text" as ordering_key, "@o.order:as",
            coalesce(octet_length("@o.payload"), 0) as bytes, 1 as pending, 0 as live, 0 as expired,
            coalesce("@o.attempts", 0) < /*put o.max_attempts*/
                and "@o.id" not in (select /*as id*/ value /*end*/ from json_each(?16))
                /*if next_attempt_at*/ and coalesce("@o.next_attempt_at:time" <= (select now from clock), 1) /*end*/ as due,
            -- A retry goes alone: if it fails again, nothing after it was touched.
            /*if next_attempt_at and created_at*/ coalesce("@o.next_attempt_at:time" > "@o.created_at:time" + ?15, 0)
                or /*end*/ coalesce("@o.attempts", 0) > 0 as waits
        from "@outbox" o
        where "@o.status" in ('@open') /*if namespace*/ and "@o.namespace" = /*as namespace*/ ?1 /*end*/ /*end*/
            /*put o.and_in_scope*/
        order by "@o.order"
        limit ?13
    )
    union all
    select
        "@o.id", "@o.topic:text", "@o.ordering_key:text", "@o.order", coalesce(octet_length("@o.payload"), 0), 0,
        /*if locked_until*/ coalesce("@o.locked_until:time", 0) >= (select now from clock) /*else*/ 1 /*end*/,
        coalesce(/*if locked_until*/ coalesce("@o.locked_until:time", 0) < (select now from clock) /*else*/ 0 /*end*/
            and coalesce("@o.attempts", 0) < /*put o.max_attempts*/
            and "@o.id" not in (select /*as id*/ value /*end*/ from json_each(?16))
            /*put o.and_in_scope*/, 0),
        0, 0
    from "@outbox" o
    where "@o.status" = '@processing' /*if namespace*/ and "@o.namespace" = /*as namespace*/ ?1 /*end*/ /*end*/
    union all
    -- A dead head that blocks is a row that never passes.
    select "@o.id", "@o.topic:text", "@o.ordering_key:text", "@o.order", 0, 0, 0, 0, 0, 0
    from "@outbox" o
    where ?10 and "@o.status" = '@dead' /*if namespace*/ and "@o.namespace" = /*as namespace*/ ?1 /*end*/ /*end*/
        and /*if topic*/ ("@o.topic" in (select value from json_each(?12))) <> ?11 /*else*/ ?11 /*end*/
        and "@o.ordering_key:text" is not null
),
judged as (
    select
        id, ordering_key, bytes, "@x.order:ref", iif(?14, expired, due) as claimable,
        coalesce(min(iif(?14, expired, due and not waits)) over (
            partition by topic, ordering_key order by "@x.order:ref" rows between unbounded preceding and 1 preceding
        ), 1) as unbroken,
        -- The key is in somebody's hands, also what lies before the row that is.
        max(live) over (partition by topic, ordering_key) as in_flight,
        -- Beyond the rows that are looked at there may be earlier ones of the key.
        coalesce(sum(pending) over (
            order by "@x.order:ref" rows between unbounded preceding and 1 preceding
        ), 0) as pending_before
    from seen x
),
picked as (
    select id
    from (
        select id, row_number() over in_order as place, sum(bytes) over in_order as bytes_so_far
        from judged x
        where claimable and (not ?10 or ordering_key is null or (unbroken and not in_flight and pending_before < ?13))
        window in_order as (order by "@x.order:ref" rows between unbounded preceding and current row)
    )
    where place = 1 or (place <= ?5 and bytes_so_far <= ?6)
)
/*list picked*/
update "@outbox"
set "@status" = '@processing', "@attempts" = coalesce("@attempts", 0) + 1,
    /*if locked_by*/ "@locked_by" = ?7, /*end*/
    /*if locked_until*/ "@locked_until" = /*as locked_until*/ (select now from clock) + ?9 /*end*/, /*end*/
    /*if locked_at*/ "@locked_at" = /*as locked_at*/ (select now from clock) /*end*/, /*end*/
    /*if version*/ "@version" = coalesce("@version:int", 0) + 1, /*end*/
    /*if updated_at*/ "@updated_at" = /*as updated_at*/ (select now from clock) /*end*/, /*end*/
    "@lease_token" = ?8
where "@id" in (select id from picked)
returning "@order:as", "@seq:int" as seq, "@message",
    "@attempts:int" as attempts, "@max_attempts:int" as max_attempts, "@version:int" as version,
    "@created_at:time" as created_at, coalesce("@id" = /*as id*/ "@id:text" /*end*/, 0) as found_by_id
