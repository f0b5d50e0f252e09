-- Takes due rows; keys are ignored.
--   ?1 namespace  ?2 max attempts  ?3 topics  ?4 tenant  ?5 limit  ?6 max bytes  ?7 worker  ?8 token  ?9 lease in ms
--   ?10 rows that are left out, as a JSON array
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now),
fresh as (
    select "@seq" as seq, "@id" as id, octet_length("@payload") as bytes
    from "@outbox" indexed by "@outbox+fresh"
    where "@namespace" = ?1 and "@status" = '@pending' and "@next_attempt_at" <= "@created_at"
        and "@attempts" < ?2 and "@id" not in (select /*as id*/ value /*end*/ from json_each(?10))
        and (?3 is null or "@topic" in (select value from json_each(?3)))
        and (?4 is null or "@tenant" = ?4)
    order by "@seq"
    limit ?5
),
due as (
    select "@seq" as seq, "@id" as id, octet_length("@payload") as bytes
    from "@outbox" indexed by "@outbox+waiting"
    where "@namespace" = ?1 and "@status" = '@pending' and "@next_attempt_at" > "@created_at"
        and "@next_attempt_at" <= (select now from clock)
        and "@attempts" < ?2 and "@id" not in (select /*as id*/ value /*end*/ from json_each(?10))
        and (?3 is null or "@topic" in (select value from json_each(?3)))
        and (?4 is null or "@tenant" = ?4)
    order by "@next_attempt_at", "@seq"
    limit ?5
),
picked as (
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
