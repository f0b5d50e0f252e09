-- Counts what is not delivered.
--   ?1 namespace
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now),
open as (
    select count(*) as n,
        /*if next_attempt_at*/ count(*) filter (where "@next_attempt_at:time" > (select now from clock)) /*else*/ 0 /*end*/ as not_due,
        min("@created_at:time") as oldest
    from "@outbox"
    where "@status" in ('@open') /*if namespace*/ and "@namespace" = /*as namespace*/ ?1 /*end*/ /*end*/
),
leased as (
    select count(*) as n, min("@created_at:time") as oldest from "@outbox" where "@status" = '@processing' /*if namespace*/ and "@namespace" = /*as namespace*/ ?1 /*end*/ /*end*/
),
given_up as (
    select count(*) as n from "@outbox" where "@status" = '@dead' /*if namespace*/ and "@namespace" = /*as namespace*/ ?1 /*end*/ /*end*/
)
select
    open.n as pending, open.not_due as waiting, leased.n as processing, given_up.n as dead,
    -- Anything may stand there.
    cast(max(clock.now - coalesce(min(open.oldest, leased.oldest), open.oldest, leased.oldest, clock.now), 0) as integer) as oldest_ms
from clock, open, leased, given_up
