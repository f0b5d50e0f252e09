-- Takes the lead, or keeps it, unless another relay's lease is not over. No row comes back if one was quicker.
--   ?1 namespace  ?2 worker  ?3 lease in ms
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now)
insert into "@leaders" as l (namespace, worker, since, until)
select ?1, ?2, now, now + ?3 from clock where true
on conflict (namespace) do update set
    worker = excluded.worker, until = excluded.until,
    since = case when l.worker = excluded.worker then l.since else excluded.since end
where l.worker = excluded.worker or l.until <= excluded.since
returning worker
