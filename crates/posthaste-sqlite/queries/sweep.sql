-- Gives up rows that have used all their attempts without a verdict.
--   ?1 namespace  ?2 max attempts  ?3 topics  ?4 tenant  ?5 the error of rows that have none
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now),
exhausted as (
    select "@id" as id
    from "@outbox" indexed by "@outbox+leased"
    where "@namespace" = ?1 and "@status" = '@processing' and "@locked_until" < (select now from clock)
        and "@attempts" >= ?2
        and (?3 is null or "@topic" in (select value from json_each(?3)))
        and (?4 is null or "@tenant" = ?4)
    union all
    select "@id"
    from "@outbox" indexed by "@outbox+tried"
    where "@namespace" = ?1 and "@status" = '@pending' and "@attempts" > 0 and "@attempts" >= ?2
        and (?3 is null or "@topic" in (select value from json_each(?3)))
        and (?4 is null or "@tenant" = ?4)
)
update "@outbox" indexed by "@outbox+id"
set "@status" = '@dead', "@locked_by" = null, "@lease_token" = null, "@locked_until" = null,
    "@last_error" = coalesce("@last_error", ?5), "@updated_at" = (select now from clock)
where "@id" in (select id from exhausted)
returning "@id" as id, "@seq" as seq
