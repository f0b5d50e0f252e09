-- Every column that a relay needs, by the cursor.
--   $1 shard and $2 number of the last row  $3 limit
select shard::bigint, seq, id::text, event_type, source, aggregate_type, ordering_key, payload, created_at
from posthaste.log
where (shard, seq) > ($1, $2)
order by shard, seq
limit $3
