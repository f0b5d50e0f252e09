-- Makes a row that was inserted in this transaction the dead one that it was.
--   $1 its id  $2 the id that it had  $3 attempts  $4 error  $5 time of the first insert, in microseconds since 1970
--   $6 dedupe key  $7 hash
update "@outbox"
set /*if generated_id*/ "@id" = $2, /*end*/
    /*if attempts*/ "@attempts" = $3, /*end*/
    /*if last_error*/ "@last_error" = $4, /*end*/
    /*if created_at*/ "@created_at" = /*as created_at*/ timestampadd(microsecond, $5, cast('1970-01-01' as datetime(6))) /*end*/, /*end*/
    /*if dedupe_key*/ "@dedupe_key" = $6, /*end*/
    /*if content_hash*/ "@content_hash" = $7, /*end*/
    "@status" = '@dead'
where "@id" = $1
