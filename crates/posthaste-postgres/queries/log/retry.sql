-- Takes failed rows that are due: of a lane only the first, or the run of those that were never tried and only wait behind
-- others.
--   $1 retries after which a row is given up  $2 whether lanes are ordered  $3 rows in flight  $4, $5 lanes in flight
--   $6 whether a row that was given up may block its lane  $7 limit
--   $8 the shard, $9 the first segment and $10 the highest number that was read of it, where there are shards
with live as (
    select "@f.failed/id:int"::bigint as id,
        /*if shard*/ "@f.failed/log_id" as place, "@f.failed/topic:text" /*else*/ "@f.failed/id:int"::bigint as place,
        /*if aggregate_type and failed/aggregate_type*/ "@f.failed/aggregate_type:text" /*else*/ '' /*end*/ /*end*/
            as lane_type,
        /*if ordering_key*/
            /*if failed/ordering_key*/ "@f.failed/ordering_key:text" /*else*/ "@f.failed/aggregate_id:text" /*end*/
        /*else*/ null::text /*end*/ as lane_key,
        /*if shard*/ "@f.failed/attempts" > 0 /*else*/ "@f.failed/last_error:text" is not null /*end*/ as tried,
        "@f.failed/next_attempt_at:time" <= now() as due,
        "@f.failed/attempts:int" >= $1::bigint /*if failed/died_at*/ or "@f.failed/died_at" is not null /*end*/ as dead
    from "@failed" f
    where ($6 or ("@f.failed/attempts:int" < $1::bigint
        /*if failed/died_at*/ and "@f.failed/died_at" is null /*end*/))
        /*if shard*/ and "@f.failed/shard" = $8::integer /*end*/
),
placed as (
    select id, place, lane_type, lane_key, dead, due,
        row_number() over lane = 1 or bool_and(not tried) over lane as its_turn,
        bool_and(due) over lane as lane_due,
        coalesce(bool_or(dead) over (
            partition by lane_type, lane_key order by place rows between unbounded preceding and 1 preceding
        ), false) as behind_dead
    from live
    window lane as (partition by lane_type, lane_key, dead order by place)
),
picked as (
    select id, place, lane_key is not null and (behind_dead /*if shard*/ or $6 and exists (
            select from "@failed" e
            where "@e.failed/topic:text" = p.lane_type and "@e.failed/ordering_key:text" = p.lane_key
                and "@e.failed/log_id" < p.place and "@e.failed/shard" <> $8::integer and "@e.failed/died_at" is not null
        ) /*end*/) as behind_dead
    from placed p
    where not dead and id <> all ($3::bigint[])
        and case when lane_key is null or not $2 then due
            else its_turn and lane_due and not exists (
                select from unnest($4::text[], $5::text[]) as b (lane_type, lane_key)
                where b.lane_type = p.lane_type and b.lane_key = p.lane_key
            ) /*if shard*/ and not exists (
                -- Those before it in its lane may be in a shard of an earlier generation, whose numbers are lower.
                select from "@failed" e
                where "@e.failed/topic:text" = p.lane_type and "@e.failed/ordering_key:text" = p.lane_key
                    and "@e.failed/log_id" < p.place and "@e.failed/shard" <> $8::integer
                    and "@e.failed/died_at" is null and "@e.failed/attempts:int" < $1::bigint
            ) and not exists (
                -- What is enqueued with a time of its own may stand behind rows that were not read yet.
                select from "@outbox" o where "@o.shard" = $8::integer and o.segment >= $9 and "@o.id" > $10::bigint and "@o.id" < p.place
            ) /*end*/ end
    order by place
    limit $7
)
select p.id, p.behind_dead, "@f.failed/log_id:int"::bigint as log_id, "@f.failed/event_id:text" as event_id,
    /*if ordering_key*/
        /*if failed/ordering_key*/ "@f.failed/ordering_key:text" /*else*/ "@f.failed/aggregate_id:text" /*end*/
    /*else*/ null::text /*end*/ as ordering_key,
    "@f.failed/tenant:text" as tenant, "@f.failed/event_type:text" as event_type, "@f.failed/source:text" as source,
    "@f.failed/aggregate_type:text" as aggregate_type, "@f.failed/aggregate_id:text" as aggregate_id,
    "@f.failed/topic:text" as topic, "@f.failed/content_type:text" as content_type, "@f.failed/payload:bytes" as payload,
    "@f.failed/headers:bytes" as headers,
    /*if failed/created_at*/ "@f.failed/created_at:time" /*else*/ now() /*end*/ as created_at,
    "@f.failed/attempts:int"::bigint as attempts, l.lane_type, l.lane_key
from picked p
join "@failed" f on "@f.failed/id" = p.id
join live l on l.id = p.id
order by p.place
