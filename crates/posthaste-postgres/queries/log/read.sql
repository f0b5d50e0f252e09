-- Reads rows of the log in one snapshot, and then looks up who may still commit earlier ones.
--   $1, $2 first and last of the ids to look at  $3 limit  $4 max bytes  $5 retries after which a row is given up  $6 the table
--   $7 the shard and $8 the first segment, where there are shards; $6 is its sequence then
--
-- The locks are looked up while the statement runs, so after its snapshot was taken. That order is the proof: whoever took
-- an id below one that is seen here had its lock before the snapshot, so it is among the holders or has ended. An insert
-- has the lock of the table before it takes its id; `nextval` as a statement of its own has that of the sequence, and keeps
-- it until its transaction ends.
with found as materialized (
    select "@o.id:int"::bigint as id, /*if event_id*/ "@o.event_id:text" /*else*/ "@o.id:text" /*end*/ as event_id,
        "@o.ordering_key:text" as ordering_key, "@o.tenant:text" as tenant, "@o.event_type:text" as event_type,
        "@o.source:text" as source, "@o.aggregate_type:text" as aggregate_type, "@o.aggregate_id:text" as aggregate_id,
        "@o.topic:text" as topic, "@o.content_type:text" as content_type, "@o.payload:bytes" as payload,
        "@o.headers:bytes" as headers, "@o.created_at:time" as created_at,
        /*if shard*/ "@o.topic:text"
            /*else*/ /*if aggregate_type and failed/aggregate_type*/ "@o.aggregate_type:text" /*else*/ '' /*end*/ /*end*/ as lane_type,
        /*if ordering_key*/
            /*if failed/ordering_key*/ "@o.ordering_key:text" /*else*/ "@o.aggregate_id:text" /*end*/
        /*else*/ null::text /*end*/ as lane_key
    from unnest($1::bigint[], $2::bigint[]) as r (first_id, last_id)
    cross join lateral (
        select * from "@outbox" l where "@l.id" between r.first_id and r.last_id
            /*if shard*/ and "@l.shard" = $7::integer and l.segment >= $8 /*end*/ order by "@l.id" limit $3
    ) o
    order by 1
    limit $3
),
kept as materialized (
    /*if shard*/
    -- Row by row, by index: a plan that was made while nearly nothing had failed would hold each row against all that failed since.
    select found.id
    from found
    cross join lateral (
        select from "@failed" f where "@f.failed/shard" = $7::integer and "@f.failed/log_id" = found.id limit 1
    ) f
    /*else*/
    select found.id
    from (
        select "@f.failed/event_id:text" as event_id /*if failed/log_id*/ , "@f.failed/log_id:int" as log_id /*end*/
        from "@failed" f
    ) f
    join found using (event_id)
    /*if failed/log_id*/ where f.log_id is null or f.log_id = found.id /*end*/
    /*end*/
),
lanes as materialized (
    select f.lane_type, f.lane_key, f.live /*if shard*/ , min(f.place) as place /*end*/
    from (
        select /*if shard*/ "@f.failed/topic:text" /*else*/
                /*if aggregate_type and failed/aggregate_type*/ "@f.failed/aggregate_type:text" /*else*/ '' /*end*/ /*end*/
                as lane_type,
            /*if failed/ordering_key*/ "@f.failed/ordering_key:text" /*else*/ "@f.failed/aggregate_id:text" /*end*/
                as lane_key,
            /*if failed/died_at*/ "@f.failed/died_at" is null /*else*/ "@f.failed/attempts:int" < $5::bigint /*end*/ as live
            -- A message that waits for its time holds back only what stands behind it.
            /*if shard*/ , "@f.failed/log_id" as place /*end*/
        from "@failed" f
        -- Of all shards: those before it in its lane may be in one of an earlier generation, whose numbers are lower.
        /*if shard*/ where $5::bigint is not null /*end*/
    ) f
    join (select distinct lane_type, lane_key from found) l using (lane_type, lane_key)
    group by f.lane_type, f.lane_key, f.live
),
holders as materialized (
    select array_agg(virtualtransaction) as names, array_agg(pid is null) as prepared
    from pg_locks
    where locktype = 'relation' and mode = 'RowExclusiveLock' and granted
        and database = (select oid from pg_database where datname = current_database())
        /*if shard*/
        -- Whoever takes a number has its sequence locked from before that until the transaction ends.
        and relation = $6::text::regclass
        /*else*/
        and relation in (
            with recursive family (relation) as (
                select $6::text::regclass::oid
                union
                select i.inhrelid from pg_inherits i join family f on i.inhparent = f.relation
            )
            select f.relation from family f
            union all
            select d.objid
            from pg_depend d
            where d.refclassid = 'pg_class'::regclass and d.refobjid = $6::text::regclass
                and d.classid = 'pg_class'::regclass and d.deptype in ('a', 'i')
            union all
            select d.refobjid
            from pg_attrdef a
            join pg_depend d on d.classid = 'pg_attrdef'::regclass and d.objid = a.oid
                and d.refclassid = 'pg_class'::regclass
            where a.adrelid = $6::text::regclass
        )
        /*end*/
),
measured as (
    select *, row_number() over by_id as place, count(*) over () as seen,
        sum(bytes) over by_id - bytes as bytes_before
    from (select *, coalesce(octet_length(payload), 0) as bytes from found) f
    window by_id as (order by id)
)
select m.*,
    m.id in (select id from kept) as kept,
    /*if shard*/
    exists (
        select from lanes l
        where l.live and l.lane_type = m.lane_type and l.lane_key = m.lane_key and l.place < m.id
    ) as held,
    exists (
        select from lanes l
        where not l.live and l.lane_type = m.lane_type and l.lane_key = m.lane_key and l.place < m.id
    ) as held_by_dead,
    /*else*/
    coalesce((m.lane_type, m.lane_key) in (select lane_type, lane_key from lanes where live), false) as held,
    coalesce((m.lane_type, m.lane_key) in (select lane_type, lane_key from lanes where not live), false) as held_by_dead,
    /*end*/
    case when coalesce(m.place, 1) = 1 then h.names end as holders,
    case when coalesce(m.place, 1) = 1 then h.prepared end as holders_prepared,
    current_setting('posthaste.reader', true) as reader
from holders h
left join measured m on m.bytes_before = 0 or m.bytes_before + m.bytes <= $4::bigint
order by m.id
