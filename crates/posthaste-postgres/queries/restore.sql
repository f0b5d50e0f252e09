-- Makes a row that was inserted in this transaction the dead one that it was.
--   $1 its id  $2 the id that it had  $3 attempts  $4 error  $5 time of the first insert  $6 dedupe key  $7 hash
update "@outbox" o
set "@status" = '@dead'
    /*if generated_id*/ , "@id" = $2::text::/*type id*/ uuid /*end*/ /*end*/
    /*if attempts*/ , "@attempts" = $3 /*end*/
    /*if last_error*/ , "@last_error" = $4 /*end*/
    /*if created_at*/ , "@created_at" = /*as created_at*/ $5::timestamptz /*end*/ /*end*/
    /*if dedupe_key*/ , "@dedupe_key" = $6::text::/*type dedupe_key*/ text /*end*/ /*end*/
    /*if content_hash*/ , "@content_hash" = $7::text::/*type content_hash*/ bytea /*end*/ /*end*/
where "@o.id" = $1::text::/*type id*/ uuid /*end*/
    and $2::text is not null and $3::integer is not null and $4::text is not null and $5::timestamptz is not null
    and ($6::text is null or true) and ($7::text is null or true)
