-- Counts what is not delivered. The oldest pending row is the first in order.
--   $1 namespace
select
    pending.n as pending, cast(coalesce(pending.not_due, 0) as signed) as waiting, leased.n as processing, given_up.n as dead,
    cast(coalesce(timestampdiff(microsecond, least(
        coalesce(pending.oldest, leased.oldest), coalesce(leased.oldest, pending.oldest)
    ), utc_timestamp(6)), 0) as signed) as oldest_us
from (
    select count(*) as n,
        /*if next_attempt_at*/ sum("@o.next_attempt_at:time" > utc_timestamp(6)) /*else*/ 0 /*end*/ as not_due,
        /*if created_at*/ min("@o.created_at:time") /*else*/ null /*end*/ as oldest
    from "@outbox" o
    where "@o.status" in ('@open') /*if namespace*/ and "@o.namespace" = $1 /*end*/
) pending,
(
    select count(*) as n, /*if created_at*/ min("@o.created_at:time") /*else*/ null /*end*/ as oldest
    from "@outbox" o
    where /*if lease_token*/ "@o.status" = '@processing' /*else*/ false /*end*/ /*if namespace*/ and "@o.namespace" = $1 /*end*/
) leased,
(
    select count(*) as n
    from "@outbox" o
    where "@o.status" = '@dead' /*if namespace*/ and "@o.namespace" = $1 /*end*/
) given_up
