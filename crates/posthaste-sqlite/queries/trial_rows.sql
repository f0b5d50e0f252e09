-- Some open rows of a scope, on which verdicts are tried before all is rolled back.
--   ?1 how many  ?2 namespace  ?3 topics  ?4 tenant
select "@o.id:text" as id, coalesce("@o.id" = /*as id*/ "@o.id:text" /*end*/, 0) as found_by_id
from "@outbox" o /*if split_index*/ indexed by "@outbox+fresh" /*end*/
where
    -- Those that have an index of their own.
    /*if split_index*/ "@o.status" = '@pending' and "@o.next_attempt_at" <= "@o.created_at"
    /*else*/ "@o.status" in ('@open') /*end*/
    and /*if namespace*/ "@o.namespace" = /*as namespace*/ ?2 /*end*/ /*else*/ ?2 is not null /*end*/
    and /*if topic*/ (?3 is null or "@o.topic" in (select value from json_each(?3))) /*else*/ ?3 is null /*end*/
    and /*if tenant*/ (?4 is null or "@o.tenant" = /*as tenant*/ ?4 /*end*/) /*else*/ ?4 is null /*end*/
limit ?1
