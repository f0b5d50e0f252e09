-- Records a delivery in the handler's transaction; no row is written if it was recorded before.
insert into "@inbox" (consumer, key) values (?1, ?2) on conflict (consumer, key) do nothing
