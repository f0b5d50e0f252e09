-- Writes a row in the caller's transaction into a table that has its own rules about what may be there twice.
--   $1 id  $2 event id  $3 namespace  $4 topic  $5 key  $6 tenant  $7 dedupe key  $8 event type  $9 source
--   $10 aggregate type  $11 aggregate id  $12 content type  $13 payload  $14 headers  $15 hash
--   $16 not before, in microseconds since 1970
insert into "@outbox" (
    "@payload"
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
    , "@status"
) values (
    $13
    /*if generated_id*/ /*else*/ , $1 /*end*/
    /*if event_id*/ , $2 /*end*/
    /*if namespace*/ , $3 /*end*/
    /*if topic*/ , $4 /*end*/
    /*if ordering_key*/ , $5 /*end*/
    /*if tenant*/ , $6 /*end*/
    /*if dedupe_key*/ , $7 /*end*/
    /*if event_type*/ , $8 /*end*/
    /*if source*/ , $9 /*end*/
    /*if aggregate_type*/ , $10 /*end*/
    /*if aggregate_id*/ , $11 /*end*/
    /*if content_type*/ , $12 /*end*/
    /*if headers*/ , $14 /*end*/
    /*if content_hash*/ , $15 /*end*/
    /*if attempts*/ , 0 /*end*/
    /*if version*/ , 0 /*end*/
    -- What is due now is due since the last whole second: a column without fractions would be rounded into the future.
    /*if next_attempt_at*/ , /*as next_attempt_at*/ coalesce(nullif(
        greatest(timestampadd(microsecond, $16, cast('1970-01-01' as datetime(6))), utc_timestamp(6)), utc_timestamp(6)
    ), utc_timestamp()) /*end*/ /*end*/
    /*if created_at*/ , /*as created_at*/ utc_timestamp(6) /*end*/ /*end*/
    /*if updated_at*/ , /*as updated_at*/ utc_timestamp(6) /*end*/ /*end*/
    , '@pending'
)
