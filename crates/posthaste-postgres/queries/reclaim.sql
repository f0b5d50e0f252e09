-- Takes rows whose worker let the lease run out. With $10 never past an earlier row of the same key.
--   $1 namespace  $2 max attempts  $3 topics  $4 tenant  $5 limit  $6 max bytes  $7 worker  $8 token  $9 lease in ms
--   $10 whether keys are ordered  $11 whether dead heads block by default  $12 topics with the other policy
--   $13 rows that are left out; they hold back what follows them in their keys
with leased as materialized (
    select "@topic" as topic, "@ordering_key" as ordering_key, "@seq" as seq, "@locked_until" >= now() as live
    from "@outbox"
    where $10 and "@namespace" = $1 and "@status" = '@processing' and "@ordering_key" is not null
),
left_out as materialized (
    select "@topic" as topic, "@ordering_key" as ordering_key, "@seq" as seq
    from "@outbox"
    where $10 and "@id" = any ($13::text[]::uuid[])
),
fresh as materialized (
    -- Rows that were given back before their followers were lost.
    select "@topic" as topic, "@ordering_key" as ordering_key, min("@seq") as first_seq
    from "@outbox"
    where $10 and "@namespace" = $1 and "@status" = '@pending' and "@next_attempt_at" <= "@created_at"
        and "@seq" < (select max(seq) from leased where not live)
        and ("@topic", "@ordering_key") in (select topic, ordering_key from leased where not live)
    group by "@topic", "@ordering_key"
),
candidates as materialized (
    select "@id" as id, "@seq" as seq, "@topic" as topic, case when $10 then "@ordering_key" end as ordering_key,
        octet_length("@payload") as bytes
    from "@outbox" o
    where "@namespace" = $1 and "@status" = '@processing' and "@locked_until" < now()
        and "@attempts" < $2 and "@id" not in (select unnest($13::text[]::uuid[]))
        and ($3::text[] is null or "@topic" = any ($3))
        and ($4::text is null or "@tenant" = $4)
        and (not $10 or "@ordering_key" is null or (
            ("@topic", "@ordering_key") not in (select topic, ordering_key from leased where live)
            and not exists (
                select from fresh e
                where e.topic = o."@topic" and e.ordering_key = o."@ordering_key" and e.first_seq < o."@seq"
            )
            and not exists (
                select from left_out e
                where e.topic = o."@topic" and e.ordering_key = o."@ordering_key" and e.seq < o."@seq"
            )
            and not exists (
                select from "@outbox" e
                where e."@namespace" = $1 and e."@topic" = o."@topic" and e."@ordering_key" = o."@ordering_key"
                    and e."@status" = '@pending' and e."@next_attempt_at" > e."@created_at" and e."@seq" < o."@seq"
            )
            and not exists (
                select from "@outbox" e
                where e."@namespace" = $1 and e."@topic" = o."@topic" and e."@ordering_key" = o."@ordering_key"
                    and e."@status" = '@dead' and e."@seq" < o."@seq" and (e."@topic" = any ($12::text[])) <> $11
            )
        ))
    order by "@seq"
    limit $5
),
locked as materialized (
    select o."@id" as id
    from "@outbox" o
    where o."@id" = any (array(select id from candidates)) and o."@status" = '@processing' and o."@locked_until" < now()
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
/*list picked*/
update "@outbox" o
set "@status" = '@processing', "@attempts" = o."@attempts" + 1,
    "@locked_by" = $7::text::/*type locked_by*/ uuid /*end*/,
    "@lease_token" = $8::text::/*type lease_token*/ uuid /*end*/, "@locked_until" = now() + $9::bigint * interval '1 millisecond', "@updated_at" = now()
where o."@id" = any (array(select id from picked))
returning "@o.seq"::bigint as seq, "@o.message", "@o.attempts:int"::bigint as attempts,
    "@o.max_attempts:int"::bigint as max_attempts, "@o.version:int"::bigint as version,
    "@o.created_at:time" as created_at
