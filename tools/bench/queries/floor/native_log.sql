-- Every column that a relay needs, by the cursor. One shard, as the log has unless it is given more: a comparison of whole rows
-- is planned as if it were one of shards alone, and ends in a sort of all that is left.
--   $1 (one shard only)  $2 number of the last row  $3 limit
select shard::bigint, seq, id::text, event_type, source, aggregate_type, ordering_key, payload, created_at
from posthaste.log
where shard = 0 and seq > $2 and $1::bigint is not null
order by seq
limit $3
