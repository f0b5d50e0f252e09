-- Takes failed rows that are due: of a lane only the first, or the run of those that were never tried and only wait behind
-- others.
--   $1 retries after which a row is given up  $2 whether lanes are ordered  $3 rows in flight  $4, $5 lanes in flight
--   $6 whether a row that was given up may block its lane  $7 limit
--   $8 the shard, $9 the first segment, $10 the highest number that was read of it, $11, $12 first and last of the numbers up to
--   there whose rows were not read, $13 whether one that was given up blocks its lane by default and $14 topics with the other
--   policy, $15, $16, $17 lanes of which rows that were read are not settled, each with the first of these, where there are shards
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
/*if shard*/
-- What an earlier reader left open, what was committed after later rows were read, and what is not settled of those that were.
unread as materialized (
    select o.lane_type, o.lane_key, min(o.place) as place
    from unnest($11::bigint[], $12::bigint[]) as r (first_id, last_id)
    -- Range by range, by the index.
    cross join lateral (
        select "@o.topic:text" as lane_type, "@o.ordering_key:text" as lane_key, "@o.id" as place
        from "@outbox" o
        where "@o.shard" = $8::integer and o.segment >= $9 and "@o.id" between r.first_id and r.last_id
        offset 0
    ) o
    where o.lane_key is not null
    group by 1, 2
    union all
    select * from unnest($15::text[], $16::text[], $17::bigint[])
),
behind_unread as materialized (
    select p.id
    from placed p
    join unread u on u.lane_type = p.lane_type and u.lane_key = p.lane_key and u.place < p.place
),
/*end*/
-- What may go as far as that is known without a look at other rows, in order: those looks are then for as many as are taken.
ready as (
    select *
    from placed p
    where not dead and (id in (select unnest($3::bigint[]))) is not true
        and case when lane_key is null or not $2 then due
            else its_turn and lane_due and ((lane_type, lane_key) in (
                select b.lane_type, b.lane_key from unnest($4::text[], $5::text[]) as b (lane_type, lane_key)
            )) is not true /*if shard*/ and p.id not in (select b.id from behind_unread b) /*end*/ end
    order by place
    offset 0
),
able as (
    select id, place, lane_type, lane_key, lane_key is not null and (behind_dead /*if shard*/ or $6 and (
            select "@e.failed/log_id" from "@failed" e
            where "@e.failed/topic" = p.lane_type and "@e.failed/ordering_key" = p.lane_key
                and "@e.failed/log_id" < $8::bigint << 44 and "@e.failed/shard" <> $8::integer
                and coalesce("@e.failed/died_at", 'infinity') <> 'infinity'
            order by "@e.failed/topic", "@e.failed/ordering_key", "@e.failed/log_id" limit 1
        ) is not null /*end*/) as behind_dead
    from ready p
    /*if shard*/ where lane_key is null or not $2 or (
        -- Those before it in its lane may be in a shard of an earlier generation, whose numbers are lower than all of
        -- this one's. By index, whatever the planner expects.
        select "@e.failed/log_id" from "@failed" e
        where "@e.failed/topic" = p.lane_type and "@e.failed/ordering_key" = p.lane_key
            and "@e.failed/log_id" < $8::bigint << 44 and "@e.failed/shard" <> $8::integer
            and "@e.failed/died_at" is null and "@e.failed/attempts:int" < $1::bigint
            and "@e.failed/ordering_key" is not null
        order by "@e.failed/topic", "@e.failed/ordering_key", "@e.failed/log_id" limit 1
    ) is null and not exists (
        -- What is enqueued with a time of its own may stand behind rows that were not read yet. Which lanes those
        -- beyond the highest number are of would take reading them: it waits until that is done.
        select from "@outbox" o where "@o.shard" = $8::integer and o.segment >= $9 and "@o.id" > $10::bigint and "@o.id" < p.place
    ) /*end*/
),
picked as (
    select *
    from able
    -- Else those that wait for an operator would leave no room for others. Where the topic is no column, the reader sorts them out.
    /*if shard*/ where not (behind_dead and (lane_type = any ($14::text[])) <> $13::boolean) /*end*/
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
    "@f.failed/attempts:int"::bigint as attempts, p.lane_type, p.lane_key
from picked p
join "@failed" f on "@f.failed/id" = p.id
order by p.place
