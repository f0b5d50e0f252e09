-- The newest row of the log, for a trial.
select "@o.id:int"::bigint as id from "@outbox" o order by "@o.id" desc limit 1
