-- Whether there is work, without a lock, so that an idle relay never stands in a writer's way; and what crashed workers
-- left behind: the most attempts among rows that may be tried again, counted back from the limit where a row has its own,
-- and whether some may not.
--   ?1 namespace  ?2 max attempts  ?3 topics  ?4 tenant
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now)
select
    exists (
        select 1
        from "@outbox" o
        where "@o.status" in ('@open') /*if namespace*/ and "@o.namespace" = /*as namespace*/ ?1 /*end*/ /*end*/
            and coalesce("@o.attempts", 0) < /*put o.max_attempts*/
            /*if next_attempt_at*/ and coalesce("@o.next_attempt_at:time" <= (select now from clock), 1) /*end*/
            /*put o.and_in_scope*/
    ) as due,
    /*if locked_until*/ (
        select max(?2 - (/*if max_attempts*/ coalesce("@o.max_attempts:int" /*if retries*/ + 1 /*end*/, ?2) /*else*/ ?2 /*end*/ - coalesce("@o.attempts:int", 0)))
        from "@outbox" o
        where "@o.status" = '@processing' /*if namespace*/ and "@o.namespace" = /*as namespace*/ ?1 /*end*/ /*end*/
            and coalesce("@o.locked_until:time", 0) < (select now from clock)
            and coalesce("@o.attempts", 0) < /*put o.max_attempts*/
            /*put o.and_in_scope*/
    ) /*else*/ null /*end*/ as most_tried,
    /*if locked_until*/ exists (
        select 1
        from "@outbox" o
        where "@o.status" = '@processing' /*if namespace*/ and "@o.namespace" = /*as namespace*/ ?1 /*end*/ /*end*/
            and coalesce("@o.locked_until:time", 0) < (select now from clock)
            and "@o.attempts" >= /*put o.max_attempts*/
            /*put o.and_in_scope*/
    ) /*else*/ 0 /*end*/ as exhausted
