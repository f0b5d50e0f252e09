-- Records an effect in the handler's transaction; no row is written if it was recorded before.
insert into "@handled" ("@handled/aggregate_type", "@handled/aggregate_id", "@handled/action") values ($1, $2, $3)
on conflict ("@handled/aggregate_type", "@handled/aggregate_id", "@handled/action") do nothing
