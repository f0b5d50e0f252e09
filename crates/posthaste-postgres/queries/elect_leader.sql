-- Takes the lead, or keeps it, unless another relay's lease is not over. No row comes back if one was quicker.
insert into "@leaders" as l (namespace, worker, since, until)
values ($1, $2, now(), now() + $3::bigint * interval '1 millisecond')
on conflict (namespace) do update set
    worker = excluded.worker, until = excluded.until,
    since = case when l.worker = excluded.worker then l.since else excluded.since end
where l.worker = excluded.worker or l.until <= now()
returning worker
