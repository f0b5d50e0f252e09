-- Rows as an operator sees them. Parameters are numbered as in find.sql, which takes ids.
--   ?1 namespace  ?2 labels of the status  ?3 topic  ?4 ordering key  ?5 tenant  ?7 after the row with this id  ?8 limit
select
    "@order:as", "@seq:int" as seq, "@message",
    "@attempts:int" as attempts, "@max_attempts:int" as max_attempts, "@version:int" as version,
    "@status:text" as status, /*if next_attempt_at*/ "@next_attempt_at:time" /*else*/ null /*end*/ as next_attempt_at,
    /*if locked_by*/ "@locked_by:text" /*else*/ "@lease_token:text" /*end*/ as locked_by,
    /*if locked_until*/ "@locked_until:time" /*else*/ null /*end*/ as locked_until, "@last_error:text" as last_error,
    /*if created_at*/ "@created_at:time" /*else*/ null /*end*/ as created_at,
    /*if updated_at*/ "@updated_at:time" /*else*/ null /*end*/ as updated_at,
    /*if delivered_at*/ "@delivered_at:time" /*else*/ null /*end*/ as delivered_at
from "@outbox" o
where "@status" in (select value from json_each(?2))
    /*if namespace*/ and (?1 is null or "@namespace" = /*as namespace*/ ?1 /*end*/) /*end*/
    /*if topic*/ and (?3 is null or "@topic" = ?3) /*end*/
    /*if ordering_key*/ and (?4 is null or "@ordering_key" = /*as ordering_key*/ ?4 /*end*/) /*end*/
    /*if tenant*/ and (?5 is null or "@tenant" = /*as tenant*/ ?5 /*end*/) /*end*/
    and /*if split_index*/ "@seq" > case when ?7 is null then 0 else (select "@seq" from "@outbox" where "@id" = ?7) end
    /*else*/ (?7 is null or ("@order") > (select "@order" from "@outbox" where "@id" = /*as id*/ ?7 /*end*/)) /*end*/
-- By the columns, not by what was made of them above under the same names.
order by "@o.order"
limit ?8
