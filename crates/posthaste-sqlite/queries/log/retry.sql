-- Failed rows that are due: of a lane only the first, or the run of those that were never tried and only wait behind others.
--   ?1 whether lanes are ordered  ?2 rows in flight  ?3 lanes that others are in flight of, or stand in, as [topic, key]
--   ?4 whether a dead row may block its lane  ?5 limit  ?6 the highest row of the log that was read
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now),
live as (
    select number, log_id, topic, ordering_key, last_error is not null or attempts > 0 as tried, next_attempt_at <= now as due,
        died_at is not null as dead
    from "@failed", clock
    where ?4 or died_at is null
),
placed as (
    select *,
        row_number() over lane = 1 or not max(tried) over lane as its_turn,
        min(due) over lane as lane_due,
        coalesce(max(dead) over (
            partition by topic, ordering_key order by log_id, number rows between unbounded preceding and 1 preceding
        ), 0) as behind_dead
    from live
    window lane as (partition by topic, ordering_key, dead order by log_id, number)
)
select "@f.message", f.number as number, f.log_id as seq, f.attempts as attempts, null as max_attempts, null as version,
    f.created_at as created_at, f.ordering_key is not null and p.behind_dead as behind_dead
from placed p
join "@failed" f on f.number = p.number
where not p.dead and p.number not in (select value from json_each(?2))
    and iif(p.ordering_key is null or not ?1, p.due,
        p.its_turn and p.lane_due and p.log_id <= ?6 and not exists (
            select 1 from json_each(?3) b where b.value ->> 0 = p.topic and b.value ->> 1 = p.ordering_key
        ))
order by p.log_id, p.number
limit ?5
