-- Reads on beyond the highest id that was read. The reader decodes the columns by their places.
--   $1 the highest id  $2 limit  $3 the reader's mark /*if shard*/ $4 the shard  $5 the first segment
--   $6 whether a row that was given up may block its lane /*end*/
--
-- Enough while no id below is open and no row waits. What the table of failures says of a row, as of the same snapshot, stands in
-- the last column, if the connection is the reader's own. Who may still commit ids that this passes over is looked up after it: see
-- holders.sql.
select "@o.id:int"::bigint as id,
    /*if shard*/ "@o.event_id" /*else*/ /*if event_id*/ "@o.event_id:text" /*else*/ "@o.id:text" /*end*/ /*end*/ as event_id,
    "@o.ordering_key:text" as ordering_key, "@o.tenant:text" as tenant, "@o.event_type:text" as event_type,
    "@o.source:text" as source, "@o.aggregate_type:text" as aggregate_type, "@o.aggregate_id:text" as aggregate_id,
    "@o.topic:text" as topic, "@o.content_type:text" as content_type, "@o.payload:bytes" as payload,
    "@o.headers:bytes" as headers, "@o.created_at:time" as created_at,
    -- 1: the connection is another reader's.
    case (select case
        when current_setting('posthaste.reader', true) is distinct from $3::text then 1
        when exists (select from "@failed") then 2
        else 0
    end)
    when 1 then 1
    when 2 then
        /*if shard*/
        -- The sum of 2, it is there itself, and of 4, one before it in its lane waits there, or else 8, one was given up that may
        -- block it. Each is asked for only if there is such a row at all, which mostly is not so: dead letters hold nothing back.
        case when "@o.id" <= (
                select "@f.failed/log_id" from "@failed" f where "@f.failed/shard" = $4
                order by "@f.failed/shard" desc, "@f.failed/log_id" desc limit 1
            ) and exists (
                select from "@failed" f where "@f.failed/shard" = $4 and "@f.failed/log_id" = "@o.id"
            ) then 2 else 0 end
        -- The first of its lane by index, whatever the planner expects: "exists" is mostly a look at each row where lanes are few.
        + case
            when "@o.ordering_key" is not null and (
                select "@f.failed/log_id" from "@failed" f
                where "@f.failed/died_at" is null and "@f.failed/ordering_key" is not null
                order by "@f.failed/topic", "@f.failed/ordering_key", "@f.failed/log_id" limit 1
            ) is not null and (
                -- Of all shards: those before it in its lane may be in one of an earlier generation, whose numbers are lower.
                select "@f.failed/log_id" from "@failed" f
                where "@f.failed/topic" = "@o.topic" and "@f.failed/ordering_key" = "@o.ordering_key"
                    and "@f.failed/died_at" is null and "@f.failed/ordering_key" is not null
                order by "@f.failed/topic", "@f.failed/ordering_key", "@f.failed/log_id" limit 1
            ) < "@o.id" then 4
            when $6::boolean and "@o.ordering_key" is not null and (
                -- Not "is not null": an index of all that are dead may look cheaper than that of the lane.
                select "@f.failed/log_id" from "@failed" f
                where "@f.failed/topic" = "@o.topic" and "@f.failed/ordering_key" = "@o.ordering_key"
                    and coalesce("@f.failed/died_at", 'infinity') <> 'infinity'
                order by "@f.failed/topic", "@f.failed/ordering_key", "@f.failed/log_id" limit 1
            ) < "@o.id" then 8 else 0 end
        /*else*/
        -- 16: there may be something to be looked at.
        16
        /*end*/
    else 0 end as beside
from "@outbox" o
where "@o.id" > $1::bigint /*if shard*/ and "@o.shard" = $4 and o.segment >= $5 /*end*/
order by "@o.id"
limit $2
