-- Of failed rows that may have killed a reader, those that are still to be delivered, with their lanes.
--   $1 ids  $2 retries after which a row is given up  $3 the shard, where there are shards
select "@f.failed/id:int"::bigint as id,
    /*if shard*/ "@f.failed/topic:text" /*else*/
        /*if aggregate_type and failed/aggregate_type*/ "@f.failed/aggregate_type:text" /*else*/ '' /*end*/ /*end*/
        as lane_type,
    /*if ordering_key*/
        /*if failed/ordering_key*/ "@f.failed/ordering_key:text" /*else*/ "@f.failed/aggregate_id:text" /*end*/
    /*else*/ null::text /*end*/ as lane_key
from "@failed" f
where "@f.failed/id" = any ($1::bigint[]) /*if shard*/ and "@f.failed/shard" = $3::integer /*end*/
    and /*if failed/died_at*/ "@f.failed/died_at" is null and $2::bigint is not null
        /*else*/ "@f.failed/attempts:int" < $2::bigint /*end*/
