-- Gives up rows that have used all their attempts without a verdict.
--   ?1 namespace  ?2 max attempts  ?3 topics  ?4 tenant  ?5 the error of rows that have none  ?6 added to attempts of a row
--   that was claimed
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now),
exhausted as (
    /*if locked_until*/
    select "@id" as id
    from "@outbox" /*if split_index*/ indexed by "@outbox+leased" /*end*/
    where /*if namespace*/ "@namespace" = /*as namespace*/ ?1 /*end*/ and /*end*/ "@status" = '@processing' and /*if split_index*/ "@locked_until" /*else*/ coalesce("@locked_until:time", 0) /*end*/ < (select now from clock)
        and "@attempts" >= /*put max_attempts*/
        /*put and_in_scope*/
    union all /*end*/
    select "@id" as id
    from "@outbox" /*if split_index*/ indexed by "@outbox+tried" /*end*/
    where /*if namespace*/ "@namespace" = /*as namespace*/ ?1 /*end*/ and /*end*/ "@status" /*if split_index*/ = '@pending' /*else*/ in ('@open') /*end*/ /*if max_attempts*/ /*else*/ and "@attempts" > 0 /*end*/
        and "@attempts" >= /*put max_attempts*/
        /*put and_in_scope*/
)
update "@outbox" /*if split_index*/ indexed by "@outbox+id" /*end*/
set "@attempts" = "@attempts" + case when "@status" = '@processing' then ?6 else 0 end,
    /*if locked_by*/ "@locked_by" = null, /*end*/
    /*if locked_until*/ "@locked_until" = null, /*end*/
    /*if locked_at*/ "@locked_at" = null, /*end*/
    /*if last_error*/ "@last_error" = coalesce("@last_error", ?5), /*end*/
    /*if version*/ "@version" = coalesce("@version", 0) + 1, /*end*/
    /*if updated_at*/ "@updated_at" = /*as updated_at*/ (select now from clock) /*end*/, /*end*/
    "@lease_token" = null, "@status" = '@dead'
where "@id" in (select id from exhausted)
returning "@order:as", "@id:text" as id
