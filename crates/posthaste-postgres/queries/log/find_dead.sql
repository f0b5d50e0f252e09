-- Failed rows that were given up, by their primary keys, in their order. Of the log nothing is read.
--   $1 beginning after this id  $2 retries after which a row is given up, where no time says that it was
--   $3 events; all rows if null  $4 rows beside these  $5 limit
--   $6 topic, $7 ordering key and $8 tenant, all if null, where each has a column of its own
select "@f.failed/id:int"::bigint as id
from "@failed" f
where "@f.failed/id" > $1
    and /*if failed/died_at*/ "@f.failed/died_at" is not null and $2::bigint is not null
        /*else*/ "@f.failed/attempts:int" >= $2 /*end*/
    and ($3::text[] is null or "@f.failed/id" = any ($4::bigint[])
        or /*if shard*/ "@f.failed/event_id" = any ($3::uuid[]) /*else*/ "@f.failed/event_id:text" = any ($3) /*end*/)
    /*if shard*/ and ($6::text is null or "@f.failed/topic" = $6) and ($7::text is null or "@f.failed/ordering_key" = $7)
        and ($8::text is null or "@f.failed/tenant" = $8) /*end*/
order by "@f.failed/id"
limit $5
