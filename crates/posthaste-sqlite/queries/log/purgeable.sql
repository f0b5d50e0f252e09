-- How many rows could be removed.
--   ?1 retention of what was delivered in ms  ?2 of what died  ?3 up to this row everything is settled
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now),
-- The first row that is too young: what stands behind it is not removed before it.
young as (
    select coalesce(
        (select o.seq from "@outbox" o where o.seq <= ?3 and o.created_at between now - ?1 and now order by o.seq limit 1), ?3 + 1
    ) as seq
    from clock
)
select
    (select count(*) from "@outbox" o where o.seq < young.seq
        and o.created_at < now - ?1 and not exists (select 1 from "@failed" f where f.id = o.id)) as delivered,
    (select count(*) from "@failed" where died_at is not null and died_at < now - ?2) as dead,
    (select count(*) from "@dedupe" d where d.expires_at <= now
        and not exists (select 1 from "@outbox" o where o.id = d.message_id)
        and not exists (select 1 from "@failed" f where f.id = d.message_id)) as dedupe
from clock, young
