-- Takes rows whose worker let the lease run out. With ?10 never past an earlier row of the same key.
--   ?1 namespace  ?2 max attempts  ?3 topics  ?4 tenant  ?5 limit  ?6 max bytes  ?7 worker  ?8 token  ?9 lease in ms
--   ?10 whether keys are ordered  ?11 whether dead heads block by default  ?12 topics with the other policy
--   ?13 rows that are left out, as a JSON array
--
-- With `not in` rather than `is not true` SQLite goes through all of a set of keys, to know whether nulls are in it.
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now),
live as materialized (
    select "@topic" as topic, "@ordering_key" as ordering_key
    from "@outbox" indexed by "@outbox+leased"
    where ?10 and "@namespace" = ?1 and "@status" = '@processing' and "@locked_until" >= (select now from clock)
        and "@ordering_key" is not null
),
stranded as materialized (
    select "@topic" as topic, "@ordering_key" as ordering_key, max("@seq") as last_seq
    from "@outbox" indexed by "@outbox+leased"
    where ?10 and "@namespace" = ?1 and "@status" = '@processing' and "@locked_until" < (select now from clock)
        and "@ordering_key" is not null
    group by "@topic", "@ordering_key"
),
fresh as materialized (
    -- Before a row that was claimed there are few: they were released, or are out of scope.
    select "@topic" as topic, "@ordering_key" as ordering_key, min("@seq") as seq
    from "@outbox" indexed by "@outbox+fresh"
    where "@namespace" = ?1 and "@status" = '@pending' and "@next_attempt_at" <= "@created_at"
        and "@seq" < (select max(last_seq) from stranded)
        and ("@topic", "@ordering_key") in (select topic, ordering_key from stranded)
    group by "@topic", "@ordering_key"
),
left_out as materialized (
    select "@topic" as topic, "@ordering_key" as ordering_key, "@seq" as seq
    from "@outbox" indexed by "@outbox+id"
    where ?10 and "@id" in (select /*as id*/ value /*end*/ from json_each(?13))
),
candidates as (
    select o."@seq" as seq, o."@id" as id, octet_length(o."@payload") as bytes
    from "@outbox" o indexed by "@outbox+leased"
    where o."@namespace" = ?1 and o."@status" = '@processing' and o."@locked_until" < (select now from clock)
        and o."@attempts" < ?2 and o."@id" not in (select /*as id*/ value /*end*/ from json_each(?13))
        and (?3 is null or o."@topic" in (select value from json_each(?3)))
        and (?4 is null or o."@tenant" = ?4)
        and (not ?10 or o."@ordering_key" is null or (
            ((o."@topic", o."@ordering_key") in (select topic, ordering_key from live)) is not true
            and (((o."@topic", o."@ordering_key") in (select topic, ordering_key from fresh)) is not true or not exists (
                select 1 from fresh
                where fresh.topic = o."@topic" and fresh.ordering_key = o."@ordering_key" and fresh.seq < o."@seq"
            ))
            and not exists (
                select 1 from left_out
                where left_out.topic = o."@topic" and left_out.ordering_key = o."@ordering_key" and left_out.seq < o."@seq"
            )
            and not exists (
                select 1 from "@outbox" e indexed by "@outbox+waiting_key"
                where e."@namespace" = ?1 and e."@topic" = o."@topic" and e."@ordering_key" = o."@ordering_key"
                    and e."@status" = '@pending' and e."@next_attempt_at" > e."@created_at"
                    and e."@ordering_key" is not null and e."@seq" < o."@seq"
            )
            and ((o."@topic" in (select value from json_each(?12))) = ?11 or not exists (
                select 1 from "@outbox" e indexed by "@outbox+dead"
                where e."@namespace" = ?1 and e."@topic" = o."@topic" and e."@ordering_key" = o."@ordering_key"
                    and e."@status" = '@dead' and e."@seq" < o."@seq"
            ))
        ))
    order by o."@seq"
    limit ?5
),
picked as (
    select id
    from (
        select id, row_number() over by_seq as place, sum(bytes) over by_seq as bytes_so_far
        from candidates
        window by_seq as (order by seq)
    )
    where place = 1 or bytes_so_far <= ?6
)
/*list picked*/
update "@outbox" indexed by "@outbox+id"
set "@status" = '@processing', "@attempts" = "@attempts" + 1, "@locked_by" = ?7, "@lease_token" = ?8,
    "@locked_until" = (select now from clock) + ?9, "@updated_at" = (select now from clock)
where "@id" in (select id from picked)
returning "@order:as", "@seq:int" as seq, "@message",
    "@attempts:int" as attempts, "@max_attempts:int" as max_attempts, "@version:int" as version,
    "@created_at:time" as created_at, coalesce("@id" = /*as id*/ "@id:text" /*end*/, 0) as found_by_id
