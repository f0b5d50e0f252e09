-- Takes due rows in order, never past an earlier row of the same key. Runs under the claim lock.
--   $1 namespace  $2 max attempts  $3 topics  $4 tenant  $5 limit  $6 max bytes  $7 worker  $8 token  $9 lease in ms
--   $10 whether dead heads block by default  $11 topics with the other policy  $12 whether any topic blocks
--   $13 how much is looked at: so many fresh and so many due rows, or with $14 so many lanes of each
--   $14 whether lanes are looked at, one by one, rather than rows in sequence  $15 bytes that were claimed before
--   $16 whether everything is looked at, in one pass  $17 rows that are left out
--   $18 whether nothing is taken where vanished workers left something
--
-- A lane is a topic and a key, and the empty text stands for no key. Only what is claimed is paid for: of the lanes that
-- are seen, what could hold them back is asked for by index, once for each lane. So the first rows in sequence are enough
-- while most lanes are free. Where they are not, a backlog of many rows mostly has few lanes, which are found by a loose
-- scan: each step goes to the next lane, past all rows of the last one. Where there are too many for that, all that hold
-- something back are gathered in one set, and the rows are passed by it once.
--
-- "not in" rather than a join: a hashed subplan, whatever the planner expects. Likewise "= any (array(...))" rather
-- than "in (...)": rows are fetched by index.
with recursive expired as materialized (
    -- What vanished workers left: the most attempts among rows that may be tried again, and how many may not.
    select max(o."@attempts") filter (where o."@attempts" < /*put o.max_attempts*/)::bigint as most_tried,
        count(*) filter (where o."@attempts" >= /*put o.max_attempts*/) as exhausted,
        not $18::boolean or count(*) = 0 as is_passed
    from "@outbox" o
    where o."@namespace" = $1 and o."@status" = '@processing' and o."@locked_until" < now()
        and ($3::text[] is null or o."@topic" = any ($3))
        and ($4::text is null or o."@tenant" = $4)
),
leased as materialized (
    select "@topic" as topic, "@ordering_key" as ordering_key, "@seq" as seq, "@locked_until" >= now() as live
    from "@outbox"
    where "@namespace" = $1 and "@status" = '@processing' and "@ordering_key" is not null
    union all
    -- What is left out holds back its lane as the row of a vanished worker does.
    select "@topic", "@ordering_key", "@seq", false
    from "@outbox"
    where "@id" = any ($17::text[]::uuid[]) and "@namespace" = $1 and "@ordering_key" is not null
),
blockers as materialized (
    -- Where each lane is held back at first; a live lease holds all of it.
    select topic, ordering_key, min(seq) as seq
    from (
        select "@topic" as topic, "@ordering_key" as ordering_key, "@seq" as seq
        from "@outbox"
        where $16 and "@namespace" = $1 and "@status" = '@pending' and "@next_attempt_at" > "@created_at"
            and "@ordering_key" is not null
        union all
        select topic, ordering_key, case when live then 0 else seq end from leased where $16
        union all
        select "@topic", "@ordering_key", "@seq"
        from "@outbox"
        where $16 and $12 and ("@topic" = any ($11::text[])) <> $10 and "@namespace" = $1 and "@status" = '@dead'
            and "@ordering_key" is not null
    ) b
    group by topic, ordering_key
),
fresh_lanes as (
    (
        select "@topic" as topic, coalesce("@ordering_key", '') as lane, "@seq" as seq, 1::bigint as place
        from "@outbox"
        where $14 and "@namespace" = $1 and "@status" = '@pending' and "@next_attempt_at" <= "@created_at"
        order by "@topic", coalesce("@ordering_key", ''), "@seq"
        limit 1
    )
    union all
    select n.topic, n.lane, n.seq, l.place + 1
    from fresh_lanes l
    cross join lateral (
        select "@topic" as topic, coalesce("@ordering_key", '') as lane, "@seq" as seq
        from "@outbox"
        where "@namespace" = $1 and "@status" = '@pending' and "@next_attempt_at" <= "@created_at"
            and ("@topic", coalesce("@ordering_key", '')) > (l.topic, l.lane)
        order by "@topic", coalesce("@ordering_key", ''), "@seq"
        limit 1
    ) n
    where l.place < $13
),
waiting_lanes as (
    (
        select "@topic" as topic, "@ordering_key" as lane, "@next_attempt_at" <= now() as due, 1::bigint as place
        from "@outbox"
        where $14 and "@namespace" = $1 and "@status" = '@pending' and "@next_attempt_at" > "@created_at"
            and "@ordering_key" is not null
        order by "@topic", "@ordering_key", "@seq"
        limit 1
    )
    union all
    select n.topic, n.lane, n.due, l.place + 1
    from waiting_lanes l
    cross join lateral (
        select "@topic" as topic, "@ordering_key" as lane, "@next_attempt_at" <= now() as due
        from "@outbox"
        where "@namespace" = $1 and "@status" = '@pending' and "@next_attempt_at" > "@created_at"
            and "@ordering_key" is not null and ("@topic", "@ordering_key") > (l.topic, l.lane)
        order by "@topic", "@ordering_key", "@seq"
        limit 1
    ) n
    where l.place < $13
),
free_lanes as materialized (
    -- Rows of a lane that is held back from its beginning are not worth the look.
    select topic, lane
    from fresh_lanes l
    where ($3::text[] is null or topic = any ($3))
        and (topic, lane) not in (select topic, ordering_key from leased where live)
        and not exists (
            select from "@outbox" e
            where e."@namespace" = $1 and e."@topic" = l.topic and e."@ordering_key" = l.lane
                and e."@status" = '@pending' and e."@next_attempt_at" > e."@created_at" and e."@seq" < l.seq
        )
        and not exists (
            select from leased e where not e.live and e.topic = l.topic and e.ordering_key = l.lane and e.seq <= l.seq
        )
        and not ($12 and (topic = any ($11::text[])) <> $10 and exists (
            select from "@outbox" e
            where e."@namespace" = $1 and e."@topic" = l.topic and e."@ordering_key" = l.lane
                and e."@status" = '@dead' and e."@seq" < l.seq
        ))
),
seen_fresh as materialized (
    (
        select "@id" as id, "@seq" as seq, "@topic" as topic, "@ordering_key" as ordering_key,
            octet_length("@payload") as bytes
        from "@outbox"
        where not $14 and not $16 and "@namespace" = $1 and "@status" = '@pending'
            and "@next_attempt_at" <= "@created_at"
            and "@attempts" < $2 and "@id" not in (select unnest($17::text[]::uuid[]))
            and ($3::text[] is null or "@topic" = any ($3))
            and ($4::text is null or "@tenant" = $4)
        order by "@seq"
        limit (select $13::bigint) -- as a parameter a missing limit would be planned as a scan and sort of everything
    )
    union all
    (
        select "@id", "@seq", "@topic", "@ordering_key", octet_length("@payload")
        from "@outbox"
        where $16 and "@namespace" = $1 and "@status" = '@pending' and "@next_attempt_at" <= "@created_at"
            and "@attempts" < $2 and "@id" not in (select unnest($17::text[]::uuid[]))
            and ($3::text[] is null or "@topic" = any ($3))
            and ($4::text is null or "@tenant" = $4)
            and ("@ordering_key" is null or ("@topic", "@ordering_key") not in (select topic, ordering_key from blockers))
        order by "@seq"
        limit (select $5::bigint)
    )
    union all
    -- What comes before that which holds back its lane.
    select r.*
    from blockers b
    cross join lateral (
        select "@id", "@seq", "@topic", "@ordering_key", octet_length("@payload")
        from "@outbox" o
        where "@namespace" = $1 and "@status" = '@pending' and "@next_attempt_at" <= "@created_at"
            and "@topic" = b.topic and coalesce("@ordering_key", '') = b.ordering_key and "@seq" < b.seq
            and "@attempts" < $2
            and ($4::text is null or "@tenant" = $4)
        order by "@topic", coalesce("@ordering_key", ''), "@seq"
        limit (select $5::bigint)
    ) r
    where b.seq > (
            select "@seq"
            from "@outbox"
            where $16 and "@namespace" = $1 and "@status" = '@pending' and "@next_attempt_at" <= "@created_at"
            order by "@seq"
            limit 1
        )
        and ($3::text[] is null or b.topic = any ($3))
    union all
    select r.*
    from free_lanes l
    cross join lateral (
        select "@id", "@seq", "@topic", "@ordering_key", octet_length("@payload")
        from "@outbox" o
        where "@namespace" = $1 and "@status" = '@pending' and "@next_attempt_at" <= "@created_at"
            and "@topic" = l.topic and coalesce("@ordering_key", '') = l.lane
            and "@attempts" < $2 and "@id" not in (select unnest($17::text[]::uuid[]))
            and ($4::text is null or "@tenant" = $4)
        order by "@topic", coalesce("@ordering_key", ''), "@seq"
        -- Some may have little; all of them together need not bring much more than is wanted.
        limit least($5::bigint, (select $5::bigint * 5 / count(*) + 1 from free_lanes))
    ) r
),
seen_lanes as materialized (
    select topic, ordering_key, min(seq) as first
    from seen_fresh
    -- Mostly nothing waits and nothing dead blocks: then no lane has to be asked.
    where ($12 or (
            select "@seq"
            from "@outbox"
            where "@namespace" = $1 and "@status" = '@pending' and "@next_attempt_at" > "@created_at"
                and "@ordering_key" is not null
            order by "@topic", "@ordering_key", "@seq" -- whatever the planner expects, by index
            limit 1
        ) is not null)
        and ordering_key is not null and (topic, ordering_key) not in (select topic, ordering_key from leased where live)
    group by topic, ordering_key
),
holds as materialized (
    -- What holds back the rows of each lane that come after it, and whether that is all that were seen.
    select l.topic, l.ordering_key, h.seq < l.first as from_start
    from seen_lanes l
    cross join lateral (
        (
            select "@seq" as seq
            from "@outbox"
            where "@namespace" = $1 and "@topic" = l.topic and "@ordering_key" = l.ordering_key
                and "@status" = '@pending' and "@next_attempt_at" > "@created_at"
            order by "@seq"
            limit 1
        )
        union all
        (
            select "@seq"
            from "@outbox"
            where $12 and (l.topic = any ($11::text[])) <> $10
                and "@namespace" = $1 and "@topic" = l.topic and "@ordering_key" = l.ordering_key
                and "@status" = '@dead'
            order by "@seq"
            limit 1
        )
    ) h
),
fresh as materialized (
    select id, seq, topic, ordering_key, bytes
    from seen_fresh s
    where ordering_key is null or (
        (topic, ordering_key) not in (select topic, ordering_key from leased where live)
        and (topic, ordering_key) not in (select topic, ordering_key from holds where from_start)
        and (
            (topic, ordering_key) not in (select topic, ordering_key from holds where not from_start)
            or not exists (
                select from "@outbox" e
                where e."@namespace" = $1 and e."@topic" = s.topic and e."@ordering_key" = s.ordering_key
                    and e."@status" = '@pending' and e."@next_attempt_at" > e."@created_at" and e."@seq" < s.seq
            ) and not ($12 and (s.topic = any ($11::text[])) <> $10 and exists (
                select from "@outbox" e
                where e."@namespace" = $1 and e."@topic" = s.topic and e."@ordering_key" = s.ordering_key
                    and e."@status" = '@dead' and e."@seq" < s.seq
            ))
        )
        and (
            (topic, ordering_key) not in (select topic, ordering_key from leased where not live)
            or not exists (
                select from leased e
                where not e.live and e.topic = s.topic and e.ordering_key = s.ordering_key and e.seq <= s.seq
            )
        )
    )
    order by seq
    limit $5
),
seen_due as materialized (
    -- Those without a key have no lane.
    select "@id" as id, "@seq" as seq, "@topic" as topic, "@ordering_key" as ordering_key,
        octet_length("@payload") as bytes
    from "@outbox"
    where (not $14 or "@ordering_key" is null) and "@namespace" = $1 and "@status" = '@pending' and "@next_attempt_at" > "@created_at"
        and "@next_attempt_at" <= now()
        and "@attempts" < $2 and "@id" not in (select unnest($17::text[]::uuid[]))
        and ($3::text[] is null or "@topic" = any ($3))
        and ($4::text is null or "@tenant" = $4)
    order by "@next_attempt_at", "@seq"
    limit (select $13::bigint)
),
due_lanes as (
    select topic, ordering_key, count(*) as many from seen_due where ordering_key is not null group by topic, ordering_key
    union all
    select topic, lane, $5::bigint from waiting_lanes where due and ($3::text[] is null or topic = any ($3))
),
due as (
    select id, seq, topic, ordering_key, bytes from seen_due where ordering_key is null
    union all
    select id, seq, topic, ordering_key, bytes
    from (
        select *,
            -- All earlier rows of the lane go along. A retry goes alone: if it fails again, nothing after it is touched.
            coalesce(bool_and(is_due and not tried) over (
                partition by topic, ordering_key order by seq rows between unbounded preceding and 1 preceding
            ), true) as unbroken,
            min(first_fresh) over lane as held_by_fresh, min(first_dead) over lane as held_by_dead
        from (
            select r.*,
                case when is_first then (
                    select e."@seq"
                    from "@outbox" e
                    where e."@namespace" = $1 and e."@topic" = r.topic and coalesce(e."@ordering_key", '') = r.ordering_key
                        and e."@status" = '@pending' and e."@next_attempt_at" <= e."@created_at" and e."@attempts" < $2
                        and ($4::text is null or e."@tenant" = $4)
                    order by e."@topic", coalesce(e."@ordering_key", ''), e."@seq"
                    limit 1
                ) end as first_fresh,
                case when is_first and $12 and (r.topic = any ($11::text[])) <> $10 then (
                    select e."@seq"
                    from "@outbox" e
                    where e."@namespace" = $1 and e."@topic" = r.topic and e."@ordering_key" = r.ordering_key
                        and e."@status" = '@dead'
                    order by e."@seq"
                    limit 1
                ) end as first_dead
            from due_lanes l
            cross join lateral (
                select "@id" as id, "@seq" as seq, "@topic" as topic, "@ordering_key" as ordering_key,
                    octet_length("@payload") as bytes, "@attempts" > 0 as tried, row_number() over (order by "@seq") = 1 as is_first,
                    "@next_attempt_at" <= now() and "@attempts" < $2 and ($4::text is null or "@tenant" = $4) as is_due
                from "@outbox"
                where "@namespace" = $1 and "@topic" = l.topic and "@ordering_key" = l.ordering_key
                    and "@status" = '@pending' and "@next_attempt_at" > "@created_at"
                order by "@seq"
                limit l.many
            ) r
            where (l.topic, l.ordering_key) not in (select topic, ordering_key from leased where live)
        ) probed
        window lane as (partition by topic, ordering_key)
    ) judged
    where is_due and unbroken
        and (
            (topic, ordering_key) not in (select topic, ordering_key from leased where not live)
            or not exists (
                select from leased e
                where not e.live and e.topic = judged.topic and e.ordering_key = judged.ordering_key
                    and e.seq <= judged.seq
            )
        )
        -- A scheduled row takes its turn by sequence, so that it cannot overtake fresh rows of its key.
        and seq < coalesce(held_by_fresh, 9223372036854775807)
        and seq < coalesce(held_by_dead, 9223372036854775807)
),
candidates as materialized (
    select *
    from (select * from fresh union all select * from due) either
    where (select is_passed from expired)
    order by seq
    limit $5
),
locked as materialized (
    select o."@id" as id
    from "@outbox" o
    where o."@id" = any (array(select id from candidates)) and o."@status" = '@pending'
    for update skip locked
),
measured as materialized (
    select id, topic, ordering_key, seq, bytes, id in (select id from locked) as ours,
        sum(bytes) over (order by seq) - bytes + $15::bigint as bytes_before
    from candidates
),
broken as materialized (
    -- A row that somebody else has locked holds back what follows it in its key.
    select topic, ordering_key, min(seq) as seq from measured where not ours group by topic, ordering_key
),
picked as (
    select id
    from measured m
    where ours and (bytes_before = 0 or bytes_before + bytes <= $6)
        and (ordering_key is null or (topic, ordering_key) not in (select topic, ordering_key from broken)
            or not exists (
                select from broken b where b.topic = m.topic and b.ordering_key = m.ordering_key and b.seq < m.seq
            ))
)
/*list picked*/
, taken as (
    update "@outbox" o
    set "@status" = '@processing', "@attempts" = o."@attempts" + 1,
        "@locked_by" = $7::text::/*type locked_by*/ uuid /*end*/,
        "@lease_token" = $8::text::/*type lease_token*/ uuid /*end*/,
        "@locked_until" = now() + $9::bigint * interval '1 millisecond', "@updated_at" = now()
    where o."@id" = any (array(select id from picked))
    returning "@o.seq"::bigint as seq, "@o.message", "@o.attempts:int"::bigint as attempts,
        "@o.max_attempts:int"::bigint as max_attempts, "@o.version:int"::bigint as version,
        "@o.created_at:time" as created_at
)
-- One row at least: how much there was to be looked at, and whether there was more than the bytes allow.
select t.*, s.looked_at, s.is_full, e.most_tried, e.exhausted
from expired e
cross join (
    select case when $14
        then greatest((select max(place) from fresh_lanes), (select max(place) from waiting_lanes), 0)
        else greatest((select count(*) from seen_fresh), (select count(*) from seen_due)) end as looked_at,
        exists (select from measured where bytes_before > 0 and bytes_before + bytes > $6) as is_full
) s
left join taken t on true
