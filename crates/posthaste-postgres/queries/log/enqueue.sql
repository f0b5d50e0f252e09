-- Appends rows to the log in the caller's transaction. Everything comes as text and becomes what its column is; bytes come
-- as `bytea` writes them.
insert into "@outbox" (
    "@payload"
    /*if event_id*/ , "@event_id" /*end*/
    /*if namespace*/ , "@namespace" /*end*/
    /*if topic*/ , "@topic" /*end*/
    /*if ordering_key*/ , "@ordering_key" /*end*/
    /*if tenant*/ , "@tenant" /*end*/
    /*if event_type*/ , "@event_type" /*end*/
    /*if source*/ , "@source" /*end*/
    /*if aggregate_type*/ , "@aggregate_type" /*end*/
    /*if aggregate_id*/ , "@aggregate_id" /*end*/
    /*if content_type*/ , "@content_type" /*end*/
    /*if headers*/ , "@headers" /*end*/
)
select i.payload::/*type payload*/ bytea /*end*/
    /*if event_id*/ , i.event_id::/*type event_id*/ text /*end*/ /*end*/
    /*if namespace*/ , i.namespace::/*type namespace*/ text /*end*/ /*end*/
    /*if topic*/ , i.topic::/*type topic*/ text /*end*/ /*end*/
    /*if ordering_key*/ , i.ordering_key::/*type ordering_key*/ text /*end*/ /*end*/
    /*if tenant*/ , i.tenant::/*type tenant*/ text /*end*/ /*end*/
    /*if event_type*/ , i.event_type::/*type event_type*/ text /*end*/ /*end*/
    /*if source*/ , i.source::/*type source*/ text /*end*/ /*end*/
    /*if aggregate_type*/ , i.aggregate_type::/*type aggregate_type*/ text /*end*/ /*end*/
    /*if aggregate_id*/ , i.aggregate_id::/*type aggregate_id*/ text /*end*/ /*end*/
    /*if content_type*/ , i.content_type::/*type content_type*/ text /*end*/ /*end*/
    /*if headers*/ , i.headers::/*type headers*/ text /*end*/ /*end*/
from unnest(
    $1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[],
    $10::text[], $11::text[], $12::text[]
) with ordinality as i (
    event_id, namespace, topic, ordering_key, tenant, event_type, source, aggregate_type, aggregate_id, content_type,
    payload, headers, place
)
order by i.place
returning "@id:int"::bigint as place, "@id:int"::bigint::text as id, true as is_new
