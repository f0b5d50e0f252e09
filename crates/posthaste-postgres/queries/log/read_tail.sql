-- Reads on beyond the highest id that was read. The reader decodes the columns by their places.
--   $1 the highest id  $2 limit  $3 the reader's mark /*if shard*/ $4 the shard  $5 the first segment /*end*/
--
-- Enough while no id below is open, no row waits, and the table of failures is empty, which the last column says as of the same
-- snapshot, if the connection is the reader's own. Who may still commit ids that this passes over is looked up after it: see holders.sql.
select "@o.id:int"::bigint as id,
    /*if shard*/ "@o.event_id" /*else*/ /*if event_id*/ "@o.event_id:text" /*else*/ "@o.id:text" /*end*/ /*end*/ as event_id,
    "@o.ordering_key:text" as ordering_key, "@o.tenant:text" as tenant, "@o.event_type:text" as event_type,
    "@o.source:text" as source, "@o.aggregate_type:text" as aggregate_type, "@o.aggregate_id:text" as aggregate_id,
    "@o.topic:text" as topic, "@o.content_type:text" as content_type, "@o.payload:bytes" as payload,
    "@o.headers:bytes" as headers, "@o.created_at:time" as created_at,
    (select case
        when current_setting('posthaste.reader', true) is distinct from $3::text then 2
        when exists (select from "@failed") then 1
        else 0
    end) as beside
from "@outbox" o
where "@o.id" > $1::bigint /*if shard*/ and "@o.shard" = $4 and o.segment >= $5 /*end*/
order by "@o.id"
limit $2
