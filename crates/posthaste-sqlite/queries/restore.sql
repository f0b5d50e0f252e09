-- Makes a row that was inserted in this transaction the dead one that it was.
--   ?1 its id  ?2 the id that it had  ?3 attempts  ?4 error  ?5 time of the first insert, in ms since 1970  ?6 dedupe key
--   ?7 hash in hexadecimal digits
update "@outbox"
set "@status" = '@dead'
    /*if generated_id*/ , "@id" = /*as id*/ ?2 /*end*/ /*end*/
    /*if attempts*/ , "@attempts" = ?3 /*end*/
    /*if last_error*/ , "@last_error" = ?4 /*end*/
    /*if created_at*/ , "@created_at" = /*as created_at*/ ?5 /*end*/ /*end*/
    /*if dedupe_key*/ , "@dedupe_key" = /*as dedupe_key*/ ?6 /*end*/ /*end*/
    /*if content_hash*/ , "@content_hash" = /*as content_hash*/ ?7 /*end*/ /*end*/
where "@id" = /*as id*/ ?1 /*end*/
