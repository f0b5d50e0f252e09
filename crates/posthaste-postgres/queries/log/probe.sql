-- Looks at ids that were closed: a row that is there now was given its id outside of the transaction that inserted it.
--   $1, $2 first and last of the ids  $3 limit  $4 the shard and $5 the first segment, where there are shards
select "@o.id:int"::bigint as id,
    /*if shard*/ "@o.topic:text" /*else*/ /*if aggregate_type and failed/aggregate_type*/ "@o.aggregate_type:text" /*else*/ '' /*end*/ /*end*/
        as lane_type,
    /*if ordering_key*/
        /*if failed/ordering_key*/ "@o.ordering_key:text" /*else*/ "@o.aggregate_id:text" /*end*/
    /*else*/ null::text /*end*/ as lane_key
from unnest($1::bigint[], $2::bigint[]) as r (first_id, last_id)
cross join lateral (
    select * from "@outbox" l where "@l.id" between r.first_id and r.last_id
        /*if shard*/ and "@l.shard" = $4::integer and l.segment >= $5 /*end*/ order by "@l.id" limit $3
) o
order by 1
limit $3
