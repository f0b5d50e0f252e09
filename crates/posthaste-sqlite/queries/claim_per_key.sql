-- Takes due rows in order, never past an earlier row of the same key.
--   ?1 namespace  ?2 max attempts  ?3 topics  ?4 tenant  ?5 limit  ?6 max bytes  ?7 worker  ?8 token  ?9 lease in ms
--   ?10 whether dead heads block by default  ?11 topics with the other policy  ?12 how many fresh rows may be looked at
--   ?13 rows that are left out, as a JSON array
--
-- A live lease holds the whole key. The row of a vanished worker, a row that waits and a dead head that blocks hold what
-- follows them. Keys in flight are looked up in a set, the other rows by an index each. With `not in` rather than `is not true`
-- SQLite goes through all of the set, to know whether nulls are in it.
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now),
horizon as materialized (
    -- The first row that may not be looked at, if there are so many. Nothing with a key is taken from beyond it, because
    -- what comes earlier in that key may lie beyond it too.
    select coalesce((
        select "@seq"
        from "@outbox" indexed by "@outbox+fresh"
        where ?12 is not null and "@namespace" = ?1 and "@status" = '@pending' and "@next_attempt_at" <= "@created_at"
        order by "@seq"
        limit 1 offset coalesce(?12, 0)
    ), 9223372036854775807) as seq
),
live as materialized (
    select "@topic" as topic, "@ordering_key" as ordering_key
    from "@outbox" indexed by "@outbox+leased"
    where "@namespace" = ?1 and "@status" = '@processing' and "@locked_until" >= (select now from clock)
        and "@ordering_key" is not null
),
stranded as materialized (
    select topic, ordering_key, min(seq) as seq
    from (
        select "@topic" as topic, "@ordering_key" as ordering_key, "@seq" as seq
        from "@outbox" indexed by "@outbox+leased"
        where "@namespace" = ?1 and "@status" = '@processing' and "@locked_until" < (select now from clock)
            and "@ordering_key" is not null
        union all
        -- What is left out holds back its key as the row of a vanished worker does.
        select "@topic", "@ordering_key", "@seq"
        from "@outbox" indexed by "@outbox+id"
        where "@id" in (select /*as id*/ value /*end*/ from json_each(?13)) and "@namespace" = ?1 and "@ordering_key" is not null
    )
    group by topic, ordering_key
),
fresh as (
    select o."@seq" as seq, o."@id" as id, octet_length(o."@payload") as bytes
    from "@outbox" o indexed by "@outbox+fresh"
    where o."@namespace" = ?1 and o."@status" = '@pending' and o."@next_attempt_at" <= o."@created_at"
        and o."@seq" < (select seq from horizon)
        and o."@attempts" < ?2 and o."@id" not in (select /*as id*/ value /*end*/ from json_each(?13))
        and (?3 is null or o."@topic" in (select value from json_each(?3)))
        and (?4 is null or o."@tenant" = ?4)
        and (o."@ordering_key" is null or (
            ((o."@topic", o."@ordering_key") in (select topic, ordering_key from live)) is not true
            and (((o."@topic", o."@ordering_key") in (select topic, ordering_key from stranded)) is not true or not exists (
                select 1 from stranded
                where stranded.topic = o."@topic" and stranded.ordering_key = o."@ordering_key" and stranded.seq <= o."@seq"
            ))
            and not exists (
                select 1 from "@outbox" e indexed by "@outbox+waiting_key"
                where e."@namespace" = ?1 and e."@topic" = o."@topic" and e."@ordering_key" = o."@ordering_key"
                    and e."@status" = '@pending' and e."@next_attempt_at" > e."@created_at"
                    and e."@ordering_key" is not null and e."@seq" < o."@seq"
            )
            and ((o."@topic" in (select value from json_each(?11))) = ?10 or not exists (
                select 1 from "@outbox" e indexed by "@outbox+dead"
                where e."@namespace" = ?1 and e."@topic" = o."@topic" and e."@ordering_key" = o."@ordering_key"
                    and e."@status" = '@dead' and e."@seq" < o."@seq"
            ))
        ))
    order by o."@seq"
    limit ?5
),
due as (
    select o."@seq" as seq, o."@id" as id, octet_length(o."@payload") as bytes
    from "@outbox" o indexed by "@outbox+waiting"
    where o."@namespace" = ?1 and o."@status" = '@pending' and o."@next_attempt_at" > o."@created_at"
        and o."@next_attempt_at" <= (select now from clock)
        and o."@attempts" < ?2 and o."@id" not in (select /*as id*/ value /*end*/ from json_each(?13))
        and (?3 is null or o."@topic" in (select value from json_each(?3)))
        and (?4 is null or o."@tenant" = ?4)
        and (o."@ordering_key" is null or (
            o."@seq" < (select seq from horizon)
            and ((o."@topic", o."@ordering_key") in (select topic, ordering_key from live)) is not true
            and (((o."@topic", o."@ordering_key") in (select topic, ordering_key from stranded)) is not true or not exists (
                select 1 from stranded
                where stranded.topic = o."@topic" and stranded.ordering_key = o."@ordering_key" and stranded.seq <= o."@seq"
            ))
            and not exists (
                select 1 from "@outbox" e indexed by "@outbox+waiting_key"
                where e."@namespace" = ?1 and e."@topic" = o."@topic" and e."@ordering_key" = o."@ordering_key"
                    and e."@status" = '@pending' and e."@next_attempt_at" > e."@created_at"
                    and e."@ordering_key" is not null and e."@seq" < o."@seq"
            )
            and ((o."@topic" in (select value from json_each(?11))) = ?10 or not exists (
                select 1 from "@outbox" e indexed by "@outbox+dead"
                where e."@namespace" = ?1 and e."@topic" = o."@topic" and e."@ordering_key" = o."@ordering_key"
                    and e."@status" = '@dead' and e."@seq" < o."@seq"
            ))
        ))
    order by o."@next_attempt_at", o."@seq"
    limit ?5
),
picked as (
    -- The first by sequence: whatever the limits cut off lies behind what is taken, in every key.
    select id
    from (
        select id, row_number() over by_seq as place, sum(bytes) over by_seq as bytes_so_far
        from (select * from fresh union all select * from due)
        window by_seq as (order by seq)
    )
    where place = 1 or (place <= ?5 and bytes_so_far <= ?6)
)
/*list picked*/
update "@outbox" indexed by "@outbox+id"
set "@status" = '@processing', "@attempts" = "@attempts" + 1, "@locked_by" = ?7, "@lease_token" = ?8,
    "@locked_until" = (select now from clock) + ?9, "@updated_at" = (select now from clock)
where "@id" in (select id from picked)
returning "@order:as", "@seq:int" as seq, "@message",
    "@attempts:int" as attempts, "@max_attempts:int" as max_attempts, "@version:int" as version,
    "@created_at:time" as created_at, coalesce("@id" = /*as id*/ "@id:text" /*end*/, 0) as found_by_id
