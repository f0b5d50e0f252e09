-- Takes rows back from workers that vanished, where the table says since when a row is claimed and not until when.
--   ?1 namespace  ?2 max attempts  ?3 topics  ?4 tenant  ?5 the error of rows that have none  ?6 stalled after so many ms
--   ?7 only these rows, as a JSON array, if any are given  ?8 added to attempts of a row that dies
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now),
stalled as (
    select "@id" as id
    from "@outbox"
    where /*if namespace*/ "@namespace" = /*as namespace*/ ?1 /*end*/ and /*end*/ "@status" = '@processing'
        and coalesce("@locked_at:time", 0) < (select now from clock) - ?6
        /*if topic*/ and (?3 is null or "@topic" in (select value from json_each(?3))) /*end*/
        /*if tenant*/ and (?4 is null or "@tenant" = /*as tenant*/ ?4 /*end*/) /*end*/
        and (?7 is null or "@id" in (select /*as id*/ value /*end*/ from json_each(?7)))
)
/*list stalled*/
update "@outbox"
set "@attempts" = "@attempts" + case
        when "@attempts" >= /*if max_attempts*/ coalesce("@max_attempts" /*if retries*/ + 1 /*end*/, ?2) /*else*/ ?2 /*end*/ then ?8 else 0 end,
    /*if locked_by*/ "@locked_by" = null, /*end*/
    /*if last_error*/ "@last_error" = case
        when "@attempts" >= /*if max_attempts*/ coalesce("@max_attempts" /*if retries*/ + 1 /*end*/, ?2) /*else*/ ?2 /*end*/ then coalesce("@last_error", ?5) else "@last_error" end, /*end*/
    /*if version*/ "@version" = coalesce("@version", 0) + 1, /*end*/
    /*if updated_at*/ "@updated_at" = /*as updated_at*/ (select now from clock) /*end*/, /*end*/
    "@locked_at" = null, "@lease_token" = null,
    "@status" = case when "@attempts" >= /*if max_attempts*/ coalesce("@max_attempts" /*if retries*/ + 1 /*end*/, ?2) /*else*/ ?2 /*end*/ then '@dead' else '@pending' end
where "@id" in (select id from stalled)
returning "@order:as", "@id:text" as id, "@status:text" as status
