-- Takes due rows in order, never past an earlier row of the same key. Runs under the claim lock.
--   $1 namespace  $2 max attempts  $3 topics  $4 tenant  $5 limit  $6 max bytes  $7 worker  $8 token  $9 lease in ms
--   $10 whether dead heads block by default  $11 topics with the other policy  $12 whether any topic blocks
--   $13 how many fresh rows may be looked at
--
-- Which keys are blocked is worked out once, as sets. "not in" rather than a join: a hashed subplan keeps the order of
-- the index, so that the scan of a backlog stops at the limit. Likewise "= any (array(...))" rather than "in (...)": rows
-- are fetched by index, however many the planner expects of a limit it does not know.
with leased as materialized (
    select "@topic" as topic, "@ordering_key" as ordering_key, "@seq" as seq, "@locked_until" >= now() as live
    from "@outbox"
    where "@namespace" = $1 and "@status" = '@processing' and "@ordering_key" is not null
),
dead_heads as materialized (
    select "@topic" as topic, "@ordering_key" as ordering_key
    from "@outbox"
    where $12 and "@namespace" = $1 and "@status" = '@dead' and "@ordering_key" is not null
        and ("@topic" = any ($11::text[])) <> $10
),
waiting as materialized (
    select "@topic" as topic, "@ordering_key" as ordering_key, "@attempts" > 0 as tried
    from "@outbox"
    where "@namespace" = $1 and "@status" = '@pending' and "@next_attempt_at" > "@created_at"
        and "@ordering_key" is not null
),
fresh as materialized (
    select id, seq, topic, ordering_key, bytes
    from (
        select "@id" as id, "@seq" as seq, "@topic" as topic, "@ordering_key" as ordering_key,
            octet_length("@payload") as bytes
        from "@outbox"
        where "@namespace" = $1 and "@status" = '@pending' and "@next_attempt_at" <= "@created_at"
            and "@attempts" < $2
            and ($3::text[] is null or "@topic" = any ($3))
            and ($4::text is null or "@tenant" = $4)
        order by "@seq"
        limit (select $13::bigint) -- as a parameter a missing limit would be planned as a scan and sort of everything
    ) seen
    where ordering_key is null or (
        (topic, ordering_key) not in (select topic, ordering_key from leased where live)
        and (
            (topic, ordering_key) not in (select topic, ordering_key from leased where not live)
            or not exists (
                select from leased e
                where not e.live and e.topic = seen.topic and e.ordering_key = seen.ordering_key and e.seq < seen.seq
            )
        )
        and (topic, ordering_key) not in (select topic, ordering_key from dead_heads)
        -- A row that was tried came before all that are fresh; one that was only scheduled may have come after.
        and (topic, ordering_key) not in (select topic, ordering_key from waiting where tried)
        and (
            (topic, ordering_key) not in (select topic, ordering_key from waiting where not tried)
            or not exists (
                select from "@outbox" e
                where e."@namespace" = $1 and e."@topic" = seen.topic and e."@ordering_key" = seen.ordering_key
                    and e."@status" = '@pending' and e."@next_attempt_at" > e."@created_at" and e."@seq" < seen.seq
            )
        )
    )
    order by seq
    limit $5
),
due as (
    select "@id" as id, "@seq" as seq, "@topic" as topic, "@ordering_key" as ordering_key,
        octet_length("@payload") as bytes
    from "@outbox" o
    where "@namespace" = $1 and "@status" = '@pending' and "@next_attempt_at" > "@created_at"
        and "@next_attempt_at" <= now()
        and "@attempts" < $2
        and ($3::text[] is null or "@topic" = any ($3))
        and ($4::text is null or "@tenant" = $4)
        and ("@ordering_key" is null or (
            -- Of the waiting rows of one key only the first may go.
            "@seq" = (
                select min(e."@seq")
                from "@outbox" e
                where e."@namespace" = $1 and e."@topic" = o."@topic" and e."@ordering_key" = o."@ordering_key"
                    and e."@status" = '@pending' and e."@next_attempt_at" > e."@created_at"
            )
            and ("@topic", "@ordering_key") not in (select topic, ordering_key from leased where live)
            and not exists (
                select from leased e
                where not e.live and e.topic = o."@topic" and e.ordering_key = o."@ordering_key" and e.seq < o."@seq"
            )
            and (not $12 or not exists (
                select from "@outbox" e
                where e."@namespace" = $1 and e."@topic" = o."@topic" and e."@ordering_key" = o."@ordering_key"
                    and e."@status" = '@dead' and e."@seq" < o."@seq" and (e."@topic" = any ($11::text[])) <> $10
            ))
            -- A scheduled row takes its turn by sequence, so that it cannot overtake fresh rows of its key: it goes once
            -- all that are older have been looked at.
            and ("@attempts" > 0 or "@seq" < (
                select case when count(*) < $5 and $13::bigint is null then 9223372036854775807
                    else coalesce(max(fresh.seq), 0) end
                from fresh
            ))
        ))
    order by "@next_attempt_at", "@seq"
    limit $5
),
candidates as materialized (
    select * from fresh
    union all
    select * from due
    order by seq
    limit $5
),
locked as materialized (
    select o."@id" as id
    from "@outbox" o
    where o."@id" = any (array(select id from candidates)) and o."@status" = '@pending'
    for update skip locked
),
picked as (
    select id
    from (
        select id, ordering_key, bytes, ours,
            -- A row that somebody else has locked holds back what follows it in its key.
            bool_and(ours) over (partition by topic, ordering_key order by seq) as unbroken,
            sum(bytes) over (order by seq) - bytes as bytes_before
        from (select *, id in (select id from locked) as ours from candidates) looked_up
    ) measured
    where ours and (unbroken or ordering_key is null) and (bytes_before = 0 or bytes_before + bytes <= $6)
)
update "@outbox" o
set "@status" = '@processing', "@attempts" = o."@attempts" + 1,
    "@locked_by" = $7::text::/*type locked_by*/ uuid /*end*/,
    "@lease_token" = $8::text::/*type lease_token*/ uuid /*end*/, "@locked_until" = now() + $9::bigint * interval '1 millisecond', "@updated_at" = now()
where o."@id" = any (array(select id from picked))
returning "@o.seq"::bigint as seq, "@o.id:text" as id, "@o.event_id:text" as event_id, "@o.namespace:text" as namespace,
    "@o.topic:text" as topic, "@o.ordering_key:text" as ordering_key, "@o.tenant:text" as tenant,
    "@o.dedupe_key:text" as dedupe_key, "@o.event_type:text" as event_type, "@o.source:text" as source,
    "@o.aggregate_type:text" as aggregate_type, "@o.aggregate_id:text" as aggregate_id,
    "@o.content_type:text" as content_type, "@o.payload:bytes" as payload, "@o.headers:text" as headers,
    "@o.content_hash:bytes" as content_hash, "@o.attempts:int"::bigint as attempts,
    "@o.max_attempts:int"::bigint as max_attempts, "@o.version:int"::bigint as version,
    "@o.created_at:time" as created_at
