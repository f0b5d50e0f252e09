-- Records a delivery in the handler's transaction; waits for a transaction that records the same one.
insert into "@inbox" (consumer, `key`, handled_at) values ($1, $2, utc_timestamp(6))
