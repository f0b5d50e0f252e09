-- Writes rows in the caller's transaction. A dedupe key that is taken, or an id that exists, writes nothing; the ids
-- that come back were written.
--   ?1 rows as a JSON array  ?2 their payloads, one behind the other
--
-- Where the table is ordered by time, a row is as much later than the clock as it needs to stay behind the earlier ones of
-- its key, of this call and of those before, whatever their ids are.
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now),
input as (
    select key as place, value ->> 'id' as id, value ->> 'event_id' as event_id, value ->> 'namespace' as namespace,
        value ->> 'topic' as topic, value ->> 'ordering_key' as ordering_key, value ->> 'tenant' as tenant,
        value ->> 'dedupe_key' as dedupe_key, value ->> 'event_type' as event_type, value ->> 'source' as source,
        value ->> 'aggregate_type' as aggregate_type, value ->> 'aggregate_id' as aggregate_id,
        value ->> 'content_type' as content_type, value ->> 'headers' as headers, value ->> 'hash' as hash,
        value ->> 'not_before' as not_before, value ->> 'first' as first,
        value ->> 'later' as later, value ->> 'tick' as tick, value ->> 'start' as start, value ->> 'bytes' as bytes
    from json_each(?1)
)
/*if ordered_by_time and ordering_key*/, latest as materialized (
    -- Earlier rows that the clock alone would not put before the new ones. There is one writer at a time.
    select "@o.ordering_key" as ordering_key, max("@o.created_at") as "@created_at", max("@o.id") as last_id
    from "@outbox" o, clock
    where "@o.status" in ('@open', '@processing', '@dead')
        and "@o.created_at" >= /*as created_at*/ clock.now /*end*/
        and "@o.ordering_key" is not null
    group by "@o.ordering_key"
) /*end*/
insert into "@outbox" (
    "@payload", "@status"
    /*if generated_id*/ /*else*/, "@id" /*end*/
    /*if event_id*/, "@event_id" /*end*/
    /*if namespace*/, "@namespace" /*end*/
    /*if topic*/, "@topic" /*end*/
    /*if ordering_key*/, "@ordering_key" /*end*/
    /*if tenant*/, "@tenant" /*end*/
    /*if dedupe_key*/, "@dedupe_key" /*end*/
    /*if event_type*/, "@event_type" /*end*/
    /*if source*/, "@source" /*end*/
    /*if aggregate_type*/, "@aggregate_type" /*end*/
    /*if aggregate_id*/, "@aggregate_id" /*end*/
    /*if content_type*/, "@content_type" /*end*/
    /*if headers*/, "@headers" /*end*/
    /*if content_hash*/, "@content_hash" /*end*/
    /*if attempts*/, "@attempts" /*end*/
    /*if version*/, "@version" /*end*/
    /*if next_attempt_at*/, "@next_attempt_at" /*end*/
    /*if created_at*/, "@created_at" /*end*/
    /*if updated_at*/, "@updated_at" /*end*/
)
select
    -- substr gives null for an empty blob
    cast(coalesce(substr(?2, i.start, i.bytes), x'') as /*type payload*/blob/*end*/), '@pending'
    /*if generated_id*/ /*else*/, /*as id*/ i.id /*end*/ /*end*/
    /*if event_id*/, /*as event_id*/ i.event_id /*end*/ /*end*/
    /*if namespace*/, /*as namespace*/ i.namespace /*end*/ /*end*/
    /*if topic*/, i.topic /*end*/
    /*if ordering_key*/, /*as ordering_key*/ i.ordering_key /*end*/ /*end*/
    /*if tenant*/, /*as tenant*/ i.tenant /*end*/ /*end*/
    /*if dedupe_key*/, /*as dedupe_key*/ i.dedupe_key /*end*/ /*end*/
    /*if event_type*/, i.event_type /*end*/
    /*if source*/, i.source /*end*/
    /*if aggregate_type*/, i.aggregate_type /*end*/
    /*if aggregate_id*/, /*as aggregate_id*/ i.aggregate_id /*end*/ /*end*/
    /*if content_type*/, i.content_type /*end*/
    /*if headers*/, i.headers /*end*/
    /*if content_hash*/, /*as content_hash*/ i.hash /*end*/ /*end*/
    /*if attempts*/, 0 /*end*/
    /*if version*/, 0 /*end*/
    /*if next_attempt_at*/, /*as next_attempt_at*/ max(clock.now, coalesce(i.not_before, 0)) /*end*/ /*end*/
    /*if created_at*/, /*as created_at*/
        /*if ordered_by_time and ordering_key*/ coalesce(max(clock.now, "@l.created_at:time" + i.tick * (
            /*as created_at*/ "@l.created_at:time" /*end*/ < "@l.created_at"
            /*if generated_id*/ /*else*/ or /*as id*/ i.first /*end*/ <= l.last_id /*end*/
        )), clock.now) /*else*/ clock.now /*end*/ + i.later /*end*/ /*end*/
    /*if updated_at*/, /*as updated_at*/ clock.now /*end*/ /*end*/
from input i
cross join clock
/*if ordered_by_time and ordering_key*/ left join latest l on l.ordering_key = /*as ordering_key*/ i.ordering_key /*end*/ /*end*/
where /*if dedupe*/ i.dedupe_key is null or not exists (
    select 1
    from "@dedupe" d
    where d.namespace = i.namespace and d.topic = i.topic and d.dedupe_key = i.dedupe_key
        and (d.expires_at > clock.now or exists (select 1 from "@outbox" o where "@o.id" = d.message_id))
) /*else*/ /*if dedupe_key*/ i.dedupe_key is null or not exists (
    -- Also where no unique index guards the key: there is one writer at a time.
    select 1
    from "@outbox" o
    where "@o.dedupe_key" = /*as dedupe_key*/ i.dedupe_key /*end*/
        /*if namespace*/ and "@o.namespace" = /*as namespace*/ i.namespace /*end*/ /*end*/
        /*if topic*/ and "@o.topic" = i.topic /*end*/
) /*else*/ true /*end*/ /*end*/
order by i.place
on conflict /*if dedupe*/ ("@id") /*end*/ do nothing
returning 0 as place, "@id:text" as id, true as is_new
