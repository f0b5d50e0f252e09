-- Begins dead rows again at their old place in the order. Guarded: a row that is no longer dead is left alone.
--   ?1 namespace  ?2 topic  ?3 ordering key  ?4 tenant  ?5 ids  ?6 limit
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now)
update "@outbox" indexed by "@outbox+id"
set "@status" = '@pending', "@attempts" = 0,
    -- Due at once, but waiting by kind: followers that wait already must not overtake it.
    "@next_attempt_at" = max((select now from clock), "@created_at" + 1),
    "@updated_at" = max((select now from clock), "@created_at" + 1)
where "@status" = '@dead' and "@id" in (
    select "@id"
    from "@outbox" indexed by "@outbox+dead"
    where "@status" = '@dead'
        and (?1 is null or "@namespace" = ?1)
        and (?2 is null or "@topic" = ?2)
        and (?3 is null or "@ordering_key" = ?3)
        and (?4 is null or "@tenant" = ?4)
        and (?5 is null or "@id" in (select value from json_each(?5)))
    order by "@seq"
    limit ?6
)
returning "@id" as id, "@seq" as seq
