-- Appends rows to the log in the caller's transaction.
--   $1 event ids  $2 event types  $3 sources  $4 aggregate types  $5 aggregate ids  $6 keys  $7 tenants  $8 payloads
--   $9 headers  $10 topics  $11 content types
insert into "@outbox" (
    "@payload"
    /*if event_id*/ , "@event_id" /*end*/
    /*if event_type*/ , "@event_type" /*end*/
    /*if source*/ , "@source" /*end*/
    /*if aggregate_type*/ , "@aggregate_type" /*end*/
    /*if aggregate_id*/ , "@aggregate_id" /*end*/
    /*if tenant*/ , "@tenant" /*end*/
    /*if headers*/ , "@headers" /*end*/
    /*if topic*/ , "@topic" /*end*/
    /*if content_type*/ , "@content_type" /*end*/
)
select convert_from(i.payload, 'UTF8')::/*type payload*/ jsonb /*end*/
    /*if event_id*/ , i.event_id::/*type event_id*/ text /*end*/ /*end*/
    /*if event_type*/ , i.event_type /*end*/
    /*if source*/ , i.source /*end*/
    /*if aggregate_type*/ , i.aggregate_type /*end*/
    /*if aggregate_id*/ , coalesce(i.aggregate_id, i.ordering_key)::/*type aggregate_id*/ text /*end*/ /*end*/
    /*if tenant*/ , i.tenant::/*type tenant*/ text /*end*/ /*end*/
    /*if headers*/ , i.headers::/*type headers*/ jsonb /*end*/ /*end*/
    /*if topic*/ , i.topic /*end*/
    /*if content_type*/ , i.content_type /*end*/
from unnest(
    $1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::bytea[], $9::text[],
    $10::text[], $11::text[]
) with ordinality as i (
    event_id, event_type, source, aggregate_type, aggregate_id, ordering_key, tenant, payload, headers, topic,
    content_type, place
)
order by i.place
