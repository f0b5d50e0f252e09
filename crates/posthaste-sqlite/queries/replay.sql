-- Begins dead rows again at their old place in the order. Guarded: a row that is no longer dead is left alone.
--   ?1 namespace  ?2 topic  ?3 ordering key  ?4 tenant  ?5 ids  ?6 limit
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now)
update "@outbox" /*if split_index*/ indexed by "@outbox+id" /*end*/
set
    -- Due at once, but waiting by kind: followers that wait already must not overtake it.
    /*if next_attempt_at*/ "@next_attempt_at" = /*as next_attempt_at*/ max((select now from clock), coalesce("@created_at:time", 0) + 1) /*end*/, /*end*/
    /*if updated_at*/ "@updated_at" = /*as updated_at*/ max((select now from clock), coalesce("@created_at:time", 0) + 1) /*end*/, /*end*/
    /*if version*/ "@version" = coalesce("@version", 0) + 1, /*end*/
    "@attempts" = 0, "@status" = '@pending'
where "@status" = '@dead' and "@id" in (
    select "@id"
    from "@outbox" /*if split_index*/ indexed by "@outbox+dead" /*end*/
    where "@status" = '@dead'
        /*if namespace*/ and (?1 is null or "@namespace" = /*as namespace*/ ?1 /*end*/) /*end*/
        /*if topic*/ and (?2 is null or "@topic" = ?2) /*end*/
        /*if ordering_key*/ and (?3 is null or "@ordering_key" = /*as ordering_key*/ ?3 /*end*/) /*end*/
        /*if tenant*/ and (?4 is null or "@tenant" = /*as tenant*/ ?4 /*end*/) /*end*/
        and (?5 is null or "@id" in (select /*as id*/ value /*end*/ from json_each(?5)))
    order by "@order"
    limit ?6
)
returning "@order:as", "@id:text" as id
