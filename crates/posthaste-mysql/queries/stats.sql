-- Counts what is not delivered, up to a number of each kind. The oldest pending row is the first in order, or one of those
-- that were counted.
--   $1 namespace  $2 how many rows of a kind are counted
select
    pending.n as pending, cast(coalesce(pending.not_due, 0) as signed) as waiting, leased.n as processing, given_up.n as dead,
    cast(coalesce(timestampdiff(microsecond, least(
        coalesce(pending.oldest, leased.oldest), coalesce(leased.oldest, pending.oldest),
        coalesce(head.oldest, pending.oldest, leased.oldest)
    ), utc_timestamp(6)), 0) as signed) as oldest_us
from (
    select count(*) as n, sum(counted.not_due) as not_due, min(counted.oldest) as oldest
    from (
        select /*if next_attempt_at*/ "@o.next_attempt_at:time" > utc_timestamp(6) /*else*/ 0 /*end*/ as not_due,
            /*if created_at*/ "@o.created_at:time" /*else*/ null /*end*/ as oldest
        from "@outbox" o
        where "@o.status" in ('@open') /*if namespace*/ and "@o.namespace" = $1 /*end*/
        limit $2
    ) counted
) pending,
(
    select min(counted.oldest) as oldest
    from (
        select /*if created_at*/ "@o.created_at:time" /*else*/ null /*end*/ as oldest
        from "@outbox" o
        where "@o.status" in ('@open') /*if namespace*/ and "@o.namespace" = $1 /*end*/
        order by "@o.order"
        limit 1
    ) counted
) head,
(
    select count(*) as n, min(counted.oldest) as oldest
    from (
        select /*if created_at*/ "@o.created_at:time" /*else*/ null /*end*/ as oldest
        from "@outbox" o
        where /*if lease_token*/ "@o.status" = '@processing' /*else*/ false /*end*/ /*if namespace*/ and "@o.namespace" = $1 /*end*/
        limit $2
    ) counted
) leased,
(
    select count(*) as n
    from (
        select 1
        from "@outbox" o
        where "@o.status" = '@dead' /*if namespace*/ and "@o.namespace" = $1 /*end*/
        limit $2
    ) counted
) given_up
