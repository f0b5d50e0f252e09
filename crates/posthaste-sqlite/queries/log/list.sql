-- Events as an operator sees them, by their place in the log.
--   ?1 state  ?2 topic  ?3 ordering key  ?4 tenant  ?5 ids  ?6 after the event with this id  ?7 limit
--   ?8 the highest row that was read  ?9 ranges up to there that are not settled
-- Found by range: to look through the ranges for each row takes minutes where there are thousands.
with open as (
    select o.seq from json_each(?9) r cross join "@outbox" o where o.seq between r.value ->> 0 and r.value ->> 1
),
known as (
    select o.seq as place, 0 as number, o.id as event,
        case when f.died_at is not null then 'dead' when f.number is not null then 'pending' when o.seq > ?8 then 'pending'
            when o.seq in (select seq from open) then 'pending'
            else 'delivered' end as status,
        f.attempts, f.next_attempt_at, f.last_error, coalesce(f.died_at, f.failed_at) as updated_at
    from "@outbox" o
    left join "@failed" f on f.id = o.id
    where ?5 is null or o.id in (select value from json_each(?5))
    union all
    select f.log_id, f.number, f.id, iif(f.died_at is null, 'pending', 'dead'), f.attempts, f.next_attempt_at, f.last_error,
        coalesce(f.died_at, f.failed_at)
    from "@failed" f
    where not exists (select 1 from "@outbox" o where o.id = f.id)
        and (?5 is null or f.id in (select value from json_each(?5)))
),
content as (
    select "@o.message", o.created_at as created_at from "@outbox" o
    union all
    select "@f.message", f.created_at as created_at from "@failed" f
    where not exists (select 1 from "@outbox" o where o.id = f.id)
)
select c.*, k.place as seq, k.status, coalesce(k.attempts, 0) as attempts, null as max_attempts, null as version,
    coalesce(k.next_attempt_at, c.created_at) as next_attempt_at, null as locked_by, null as locked_until, k.last_error,
    coalesce(k.updated_at, c.created_at) as updated_at, null as delivered_at
from known k
join content c on c.id = k.event
where (?1 is null or k.status = ?1)
    and (?2 is null or c.topic = ?2) and (?3 is null or c.ordering_key = ?3) and (?4 is null or c.tenant = ?4)
    and (?6 is null or (k.place, k.number) > (select place, number from known where event = ?6))
order by k.place, k.number
limit ?7
