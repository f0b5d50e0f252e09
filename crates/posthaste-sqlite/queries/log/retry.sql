-- Failed rows that are due: of a lane only the first, or the run of those that were never tried and only wait behind others.
--   ?1 whether lanes are ordered  ?2 rows in flight  ?3 lanes that others are in flight of, or stand in, as [topic, key]
--   ?4 whether a dead row may block its lane  ?5 limit  ?6 the highest row of the log that was read
--   ?7 those up to there that were not read, as ranges [first, last]
--   ?8 whether a dead row blocks its lane by default  ?9 topics with the other policy
--   ?10 lanes of which rows that were read are not settled, with the first of these, as [topic, key, number]
--   ?11 only these rows, or null
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now),
live as (
    select f.number, f.log_id, f.topic, f.ordering_key, f.last_error is not null or f.attempts > 0 as tried,
        f.next_attempt_at <= now as due, f.died_at is not null as dead,
        -- What was never in the log stands behind the row whose place it has.
        f.log_id + not exists (select 1 from "@outbox" o where o.seq = f.log_id and o.id = f.id) as place
    from "@failed" f, clock
    where ?4 or f.died_at is null
),
placed as (
    select *,
        row_number() over lane = 1 or not max(tried) over lane as its_turn,
        min(due) over lane as lane_due,
        coalesce(max(dead) over (
            partition by topic, ordering_key order by log_id, place, number rows between unbounded preceding and 1 preceding
        ), 0) as behind_dead
    from live
    window lane as (partition by topic, ordering_key, dead order by log_id, place, number)
),
-- The first row of each lane that is still to go from the log: an earlier reader left it open, or it was read and waits.
unsettled as materialized (
    select topic, ordering_key, min(seq) as seq
    from (
        select o.topic, o.ordering_key, o.seq
        from json_each(?7) r
        cross join "@outbox" o
        where o.seq between r.value ->> 0 and r.value ->> 1 and o.ordering_key is not null
        union all
        select value ->> 0, value ->> 1, value ->> 2 from json_each(?10)
    )
    group by topic, ordering_key
)
select "@f.message", f.number as number, f.log_id as seq, f.attempts as attempts, null as max_attempts, null as version,
    f.created_at as created_at
from placed p
join "@failed" f on f.number = p.number
left join unsettled u on u.topic = p.topic and u.ordering_key = p.ordering_key
where not p.dead and p.number not in (select value from json_each(?2))
    and (?11 is null or p.number in (select value from json_each(?11)))
    -- Else those that wait for an operator would leave no room for others.
    and not (p.ordering_key is not null and p.behind_dead and (p.topic in (select value from json_each(?9))) <> ?8)
    and case
        when p.ordering_key is null or not ?1 then p.due
        -- By a set that is made once. With `not in` SQLite goes through all of it, to know whether nulls are in it.
        when (p.topic, p.ordering_key) in (select value ->> 0, value ->> 1 from json_each(?3)) then false
        else p.its_turn and p.lane_due and (u.seq is null or u.seq >= p.place)
            -- What was enqueued with a time of its own waits for all before it to be read. The last number before it may have no row.
            and coalesce((select min(o.seq) from "@outbox" o where o.seq > ?6) > p.log_id, true)
    end
order by p.log_id, p.place, p.number
limit ?5
