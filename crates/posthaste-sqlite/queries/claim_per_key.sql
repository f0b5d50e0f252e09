-- Takes due rows in order, never past an earlier row of the same key.
--   ?1 namespace  ?2 max attempts  ?3 topics  ?4 tenant  ?5 limit  ?6 max bytes  ?7 worker  ?8 token  ?9 lease in ms
--   ?10 whether dead heads block by default  ?11 topics with the other policy
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now),
held as materialized (
    -- From which row on a key is held. A live lease holds the whole key; the row of a vanished worker holds itself and
    -- what follows, and so does a dead head that blocks; a row that waits holds only what follows.
    select topic, ordering_key, min(from_seq) as from_seq
    from (
        select "@topic" as topic, "@ordering_key" as ordering_key,
            case when "@locked_until" >= (select now from clock) then 0 else "@seq" end as from_seq
        from "@outbox"
        where "@namespace" = ?1 and "@status" = '@processing' and "@ordering_key" is not null
        union all
        select "@topic", "@ordering_key", min("@seq") + 1
        from "@outbox"
        where "@namespace" = ?1 and "@status" = '@pending' and "@next_attempt_at" > "@created_at"
            and "@ordering_key" is not null
        group by "@topic", "@ordering_key"
        union all
        select "@topic", "@ordering_key", min("@seq")
        from "@outbox"
        where (?10 or ?11 <> '[]') and "@namespace" = ?1 and "@status" = '@dead' and "@ordering_key" is not null
            and ("@topic" in (select value from json_each(?11))) <> ?10
        group by "@topic", "@ordering_key"
    )
    group by topic, ordering_key
),
fresh as (
    select o."@seq" as seq, octet_length(o."@payload") as bytes
    from "@outbox" o
    left join held on held.topic = o."@topic" and held.ordering_key = o."@ordering_key"
    where o."@namespace" = ?1 and o."@status" = '@pending' and o."@next_attempt_at" <= o."@created_at"
        and o."@attempts" < ?2
        and (?3 is null or o."@topic" in (select value from json_each(?3)))
        and (?4 is null or o."@tenant" = ?4)
        and (held.from_seq is null or held.from_seq > o."@seq")
    order by o."@seq"
    limit ?5
),
due as (
    select o."@seq" as seq, octet_length(o."@payload") as bytes
    from "@outbox" o
    left join held on held.topic = o."@topic" and held.ordering_key = o."@ordering_key"
    where o."@namespace" = ?1 and o."@status" = '@pending' and o."@next_attempt_at" > o."@created_at"
        and o."@next_attempt_at" <= (select now from clock)
        and o."@attempts" < ?2
        and (?3 is null or o."@topic" in (select value from json_each(?3)))
        and (?4 is null or o."@tenant" = ?4)
        and (held.from_seq is null or held.from_seq > o."@seq")
    order by o."@next_attempt_at", o."@seq"
    limit ?5
),
picked as (
    -- The first by sequence: whatever the limits cut off lies behind what is taken, in every key.
    select seq
    from (
        select seq, row_number() over by_seq as place, sum(bytes) over by_seq as bytes_so_far
        from (select * from fresh union all select * from due)
        window by_seq as (order by seq)
    )
    where place = 1 or (place <= ?5 and bytes_so_far <= ?6)
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
