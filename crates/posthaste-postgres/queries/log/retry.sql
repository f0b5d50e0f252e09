-- Takes failed rows that are due: of a lane only the first, or the run of those that were never tried and only wait behind
-- others.
--   $1 retries after which a row is given up  $2 whether lanes are ordered  $3 rows in flight  $4, $5 lanes in flight
--   $6 whether a row that was given up may block its lane  $7 limit
with live as (
    select "@f.failed/id:int"::bigint as id,
        /*if aggregate_type and failed/aggregate_type*/ "@f.failed/aggregate_type:text" /*else*/ '' /*end*/ as lane_type,
        /*if ordering_key*/
            /*if failed/ordering_key*/ "@f.failed/ordering_key:text" /*else*/ "@f.failed/aggregate_id:text" /*end*/
        /*else*/ null::text /*end*/ as lane_key,
        "@f.failed/last_error:text" is not null as tried,
        "@f.failed/next_attempt_at:time" <= now() as due,
        "@f.failed/attempts:int" >= $1::bigint as dead
    from "@failed" f
    where $6 or "@f.failed/attempts:int" < $1::bigint
),
placed as (
    select id, lane_type, lane_key, dead, due,
        row_number() over lane = 1 or bool_and(not tried) over lane as its_turn,
        bool_and(due) over lane as lane_due,
        coalesce(bool_or(dead) over (
            partition by lane_type, lane_key order by id rows between unbounded preceding and 1 preceding
        ), false) as behind_dead
    from live
    window lane as (partition by lane_type, lane_key, dead order by id)
),
picked as (
    select id, lane_key is not null and behind_dead as behind_dead
    from placed p
    where not dead and id <> all ($3::bigint[])
        and case when lane_key is null or not $2 then due
            else its_turn and lane_due and not exists (
                select from unnest($4::text[], $5::text[]) as b (lane_type, lane_key)
                where b.lane_type = p.lane_type and b.lane_key = p.lane_key
            ) end
    order by id
    limit $7
)
select p.id, p.behind_dead, "@f.failed/log_id:int"::bigint as log_id, "@f.failed/event_id:text" as event_id,
    /*if ordering_key*/
        /*if failed/ordering_key*/ "@f.failed/ordering_key:text" /*else*/ "@f.failed/aggregate_id:text" /*end*/
    /*else*/ null::text /*end*/ as ordering_key,
    "@f.failed/tenant:text" as tenant, "@f.failed/event_type:text" as event_type, "@f.failed/source:text" as source,
    "@f.failed/aggregate_type:text" as aggregate_type, "@f.failed/aggregate_id:text" as aggregate_id,
    null::text as topic, null::text as content_type, "@f.failed/payload:bytes" as payload,
    "@f.failed/headers:text" as headers,
    /*if failed/created_at*/ "@f.failed/created_at:time" /*else*/ now() /*end*/ as created_at,
    "@f.failed/attempts:int"::bigint as attempts, l.lane_type, l.lane_key
from picked p
join "@failed" f on "@f.failed/id" = p.id
join live l on l.id = p.id
order by p.id
