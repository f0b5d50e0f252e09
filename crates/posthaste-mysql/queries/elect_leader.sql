-- Takes the lead, or keeps it, unless another relay's lease is not over. Who leads now stands in the row: assignments are
-- made from left to right, so the time is the last to change.
insert into "@leaders" (namespace, worker, since, until)
values ($1, $2, utc_timestamp(6), timestampadd(microsecond, $3 * 1000, utc_timestamp(6)))
on duplicate key update
    since = case when worker <> values(worker) and until <= utc_timestamp(6) then values(since) else since end,
    worker = case when until <= utc_timestamp(6) then values(worker) else worker end,
    until = case when worker = values(worker) then values(until) else until end
