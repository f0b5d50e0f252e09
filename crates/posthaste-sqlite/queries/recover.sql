-- Takes rows back from workers that crashed, where the table says since when a row is claimed and not until when.
--   ?1 namespace  ?2 max attempts  ?3 topics  ?4 tenant  ?5 the error of rows that have none  ?6 stalled after so many ms
--   ?7 only these rows, as a JSON array, if any are given  ?8 added to attempts of a row that dies
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now),
stalled as (
    select "@id" as id
    from "@outbox"
    where /*if namespace*/ "@namespace" = /*as namespace*/ ?1 /*end*/ and /*end*/ "@status" = '@processing'
        and coalesce("@locked_at:time", 0) < (select now from clock) - ?6
        /*put and_in_scope*/
        and (?7 is null or "@id" in (select /*as id*/ value /*end*/ from json_each(?7)))
)
/*list stalled*/
update "@outbox"
set "@attempts" = "@attempts" + case when "@attempts" >= /*put max_attempts*/ then ?8 else 0 end,
    /*if locked_by*/ "@locked_by" = null, /*end*/
    /*if last_error*/ "@last_error" = case
        when "@attempts" >= /*put max_attempts*/ then coalesce("@last_error", ?5) else "@last_error" end, /*end*/
    /*if version*/ "@version" = coalesce("@version", 0) + 1, /*end*/
    /*if updated_at*/ "@updated_at" = /*as updated_at*/ (select now from clock) /*end*/, /*end*/
    "@locked_at" = null, "@lease_token" = null,
    "@status" = case when "@attempts" >= /*put max_attempts*/ then '@dead' else '@pending' end
where "@id" in (select id from stalled)
returning "@order:as", "@id:text" as id, "@status:text" as status
