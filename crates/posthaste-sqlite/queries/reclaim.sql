-- Takes rows whose worker let the lease run out. With ?10 never past an earlier row of the same key.
--   ?1 namespace  ?2 max attempts  ?3 topics  ?4 tenant  ?5 limit  ?6 max bytes  ?7 worker  ?8 token  ?9 lease in ms
--   ?10 whether keys are ordered  ?11 whether dead heads block by default  ?12 topics with the other policy
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now),
expired as materialized (
    select "@seq" as seq, "@topic" as topic, "@ordering_key" as ordering_key, "@attempts" as attempts,
        /*if tenant*/ "@tenant" /*else*/ null /*end*/ as tenant, octet_length("@payload") as bytes
    from "@outbox"
    where "@namespace" = ?1 and "@status" = '@processing' and "@locked_until" < (select now from clock)
),
lanes as materialized (
    select topic, ordering_key, max(seq) as last_seq
    from expired
    where ?10 and ordering_key is not null
    group by topic, ordering_key
),
held as materialized (
    -- From which row on a key of these is held: wholly by a live lease, else by its first row that is pending, or dead
    -- where dead heads block. Fresh rows lie before one that was claimed only if they were released or out of scope.
    select topic, ordering_key, min(from_seq) as from_seq
    from (
        select "@topic" as topic, "@ordering_key" as ordering_key, 0 as from_seq
        from "@outbox"
        where ?10 and "@namespace" = ?1 and "@status" = '@processing' and "@locked_until" >= (select now from clock)
            and "@ordering_key" is not null
        union all
        select lanes.topic, lanes.ordering_key, o."@seq"
        from lanes
        cross join "@outbox" o on o."@topic" = lanes.topic and o."@ordering_key" = lanes.ordering_key
        where o."@namespace" = ?1 and o."@status" = '@pending' and o."@next_attempt_at" > o."@created_at"
            and o."@ordering_key" is not null
        union all
        select "@topic", "@ordering_key", "@seq"
        from "@outbox"
        where "@namespace" = ?1 and "@status" = '@pending' and "@next_attempt_at" <= "@created_at"
            and "@seq" < (select max(last_seq) from lanes)
            and ("@topic", "@ordering_key") in (select topic, ordering_key from lanes)
        union all
        select lanes.topic, lanes.ordering_key, o."@seq"
        from lanes
        cross join "@outbox" o on o."@topic" = lanes.topic and o."@ordering_key" = lanes.ordering_key
        where o."@namespace" = ?1 and o."@status" = '@dead'
            and (o."@topic" in (select value from json_each(?12))) <> ?11
    )
    group by topic, ordering_key
),
candidates as (
    select e.seq, e.bytes
    from expired e
    left join held on held.topic = e.topic and held.ordering_key = e.ordering_key
    where e.attempts < ?2
        and (?3 is null or e.topic in (select value from json_each(?3)))
        and (?4 is null or e.tenant = ?4)
        and (held.from_seq is null or held.from_seq > e.seq)
    order by e.seq
    limit ?5
),
picked as (
    select seq
    from (
        select seq, row_number() over by_seq as place, sum(bytes) over by_seq as bytes_so_far
        from candidates
        window by_seq as (order by seq)
    )
    where place = 1 or bytes_so_far <= ?6
)
update "@outbox"
set "@status" = '@processing', "@attempts" = "@attempts" + 1, "@locked_by" = ?7, "@lease_token" = ?8,
    "@locked_until" = (select now from clock) + ?9, "@updated_at" = (select now from clock)
where "@seq" in (select seq from picked)
returning "@seq" as seq, "@id" as id, "@namespace" as namespace, "@topic" as topic, "@ordering_key" as ordering_key,
    /*if tenant*/ "@tenant" /*else*/ null /*end*/ as tenant,
    /*if dedupe_key*/ "@dedupe_key" /*else*/ null /*end*/ as dedupe_key,
    /*if event_type*/ "@event_type" /*else*/ null /*end*/ as event_type,
    /*if source*/ "@source" /*else*/ null /*end*/ as source,
    /*if aggregate_type*/ "@aggregate_type" /*else*/ null /*end*/ as aggregate_type,
    /*if aggregate_id*/ "@aggregate_id" /*else*/ null /*end*/ as aggregate_id,
    /*if content_type*/ "@content_type" /*else*/ 'application/json' /*end*/ as content_type,
    "@payload" as payload,
    /*if headers*/ "@headers" /*else*/ '{}' /*end*/ as headers,
    /*if content_hash*/ "@content_hash" /*else*/ null /*end*/ as content_hash,
    "@attempts" as attempts, "@created_at" as created_at
