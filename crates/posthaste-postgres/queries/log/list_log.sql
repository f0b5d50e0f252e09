-- Rows of the log as an operator sees them.
--   $1, $2 first and last of the ids; where there are shards, each range is of one, and each number tells its own
--   $3 limit  $4 events, all if null
select "@o.id:int"::bigint as id, /*if event_id*/ "@o.event_id:text" /*else*/ "@o.id:text" /*end*/ as event_id,
    "@o.ordering_key:text" as ordering_key, "@o.tenant:text" as tenant, "@o.event_type:text" as event_type,
    "@o.source:text" as source, "@o.aggregate_type:text" as aggregate_type, "@o.aggregate_id:text" as aggregate_id,
    "@o.topic:text" as topic, "@o.content_type:text" as content_type, "@o.payload:bytes" as payload,
    "@o.headers:bytes" as headers, "@o.created_at:time" as created_at,
    -- Of one that was discarded only the row is left, which does not say so.
    /*if shard*/
    exists (select from "@schema".log_discarded d where d.shard = "@o.shard" and d.seq = "@o.id")
    /*else*/ false /*end*/ as discarded
from unnest($1::bigint[], $2::bigint[]) as r (first_id, last_id)
-- Each range by the index, in its order, and no further than to the limit.
cross join lateral (
    select * from "@outbox" l where "@l.id" between r.first_id and r.last_id
        /*if shard*/ and "@l.shard" = (r.first_id >> 44)::integer
        and ($4::uuid[] is null or "@l.event_id" = any ($4)) /*end*/
    order by "@l.id"
    limit $3
) o
order by 1
limit $3
