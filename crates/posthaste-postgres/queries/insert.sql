-- Writes rows in the caller's transaction into a table that has its own rules about what may be there twice. A row that
-- breaks one of them writes nothing; what comes back was written.
--
-- The clock's time, not that of the transaction's start: whoever waited for another's business row comes after it. Rows of
-- one call are a microsecond apart: a table that is ordered by time keeps the order of the call, whatever their ids are.
with clock as materialized (select clock_timestamp() as moment)
insert into "@outbox" (
    "@payload", "@status"
    /*if generated_id*/ /*else*/ , "@id" /*end*/
    /*if event_id*/ , "@event_id" /*end*/
    /*if namespace*/ , "@namespace" /*end*/
    /*if topic*/ , "@topic" /*end*/
    /*if ordering_key*/ , "@ordering_key" /*end*/
    /*if tenant*/ , "@tenant" /*end*/
    /*if dedupe_key*/ , "@dedupe_key" /*end*/
    /*if event_type*/ , "@event_type" /*end*/
    /*if source*/ , "@source" /*end*/
    /*if aggregate_type*/ , "@aggregate_type" /*end*/
    /*if aggregate_id*/ , "@aggregate_id" /*end*/
    /*if content_type*/ , "@content_type" /*end*/
    /*if headers*/ , "@headers" /*end*/
    /*if content_hash*/ , "@content_hash" /*end*/
    /*if attempts*/ , "@attempts" /*end*/
    /*if version*/ , "@version" /*end*/
    /*if next_attempt_at*/ , "@next_attempt_at" /*end*/
    /*if created_at*/ , "@created_at" /*end*/
    /*if updated_at*/ , "@updated_at" /*end*/
)
select i.payload::/*type payload*/ bytea /*end*/, '@pending'
    /*if generated_id*/ /*else*/ , i.id::/*type id*/ uuid /*end*/ /*end*/
    /*if event_id*/ , i.event_id::/*type event_id*/ text /*end*/ /*end*/
    /*if namespace*/ , i.namespace::/*type namespace*/ text /*end*/ /*end*/
    /*if topic*/ , i.topic::/*type topic*/ text /*end*/ /*end*/
    /*if ordering_key*/ , i.ordering_key::/*type ordering_key*/ text /*end*/ /*end*/
    /*if tenant*/ , i.tenant::/*type tenant*/ text /*end*/ /*end*/
    /*if dedupe_key*/ , i.dedupe_key::/*type dedupe_key*/ text /*end*/ /*end*/
    /*if event_type*/ , i.event_type::/*type event_type*/ text /*end*/ /*end*/
    /*if source*/ , i.source::/*type source*/ text /*end*/ /*end*/
    /*if aggregate_type*/ , i.aggregate_type::/*type aggregate_type*/ text /*end*/ /*end*/
    /*if aggregate_id*/ , i.aggregate_id::/*type aggregate_id*/ text /*end*/ /*end*/
    /*if content_type*/ , i.content_type::/*type content_type*/ text /*end*/ /*end*/
    /*if headers*/ , i.headers::/*type headers*/ text /*end*/ /*end*/
    /*if content_hash*/ , i.content_hash::/*type content_hash*/ text /*end*/ /*end*/
    /*if attempts*/ , 0 /*end*/
    /*if version*/ , 0 /*end*/
    /*if next_attempt_at*/ , /*as next_attempt_at*/ greatest(c.moment, i.not_before::timestamptz) /*end*/ /*end*/
    /*if created_at*/ , /*as created_at*/ c.moment + (i.place - 1) * interval '1 microsecond' /*end*/ /*end*/
    /*if updated_at*/ , /*as updated_at*/ c.moment /*end*/ /*end*/
from unnest(
    $1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[],
    $10::text[], $11::text[], $12::text[], $13::text[], $14::text[], $15::text[], $16::text[]
) with ordinality as i (
    id, event_id, namespace, topic, ordering_key, tenant, dedupe_key, event_type, source, aggregate_type,
    aggregate_id, content_type, payload, headers, content_hash, not_before, place
)
cross join clock c
order by /*if seq*/ i.place /*else*/
    -- One order for all producers, so that they cannot deadlock over the keys.
    i.namespace, i.topic, i.dedupe_key, i.place /*end*/
on conflict do nothing
returning 0::bigint as place, "@id:text" as id, true as is_new
