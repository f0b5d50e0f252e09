-- Counts what is not delivered, up to a number of each kind.
--   ?1 the highest row that was read  ?2 ranges up to there that are not settled  ?3 how many rows of a kind are counted
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now),
fresh as (select count(*) as n from (select 1 from "@outbox" where seq > ?1 limit ?3)),
open as (
    select count(*) as n, min(o.created_at) as oldest
    from json_each(?2) r
    join "@outbox" o on o.seq between r.value ->> 0 and r.value ->> 1
),
head as (select created_at from "@outbox" where seq > ?1 order by seq limit 1),
waiting as (
    select count(*) as n, count(*) filter (where next_attempt_at > (select now from clock)) as not_due,
        min(created_at) as oldest
    from (select next_attempt_at, created_at from "@failed" where died_at is null limit ?3)
),
given_up as (select count(*) as n from (select 1 from "@failed" where died_at is not null limit ?3)),
oldest as (
    select min(created_at) as created_at
    from (select created_at from head union all select oldest from open union all select oldest from waiting)
    where typeof(created_at) = 'integer' and created_at >= 0
)
select fresh.n + open.n + waiting.n as pending, waiting.not_due as waiting, given_up.n as dead,
    coalesce(clock.now - oldest.created_at, 0) as oldest_ms
from clock, fresh, open, waiting, given_up, oldest
