-- The newest row of the log, for a trial.
--   $1 the shard and $2 the first segment, where there are shards
select "@o.id:int"::bigint as id from "@outbox" o /*if shard*/ where "@o.shard" = $1::integer and o.segment >= $2 /*end*/ order by "@o.id" desc limit 1
