-- Claims rows that are locked: to try verdicts on them, or to find out whose claim is refused. It is rolled back.
--   $1 ids  $2 proof of the claim  $3 lease in ms  $4 worker, where the table says who has a row
update "@outbox" o
set "@status" = '@processing', "@attempts" = coalesce("@o.attempts", 0) + 1,
    "@lease_token" = $2::text::/*type lease_token*/ uuid /*end*/
    /*if locked_by*/ , "@locked_by" = $4::text::/*type locked_by*/ uuid /*end*/ /*end*/
    /*if locked_until*/ , "@locked_until" = /*as locked_until*/ now() + $3::bigint * interval '1 millisecond' /*end*/ /*end*/
    /*if locked_at*/ , "@locked_at" = /*as locked_at*/ now() /*end*/ /*end*/
    /*if version*/ , "@version" = coalesce("@o.version", 0) + 1 /*end*/
    /*if updated_at*/ , "@updated_at" = /*as updated_at*/ now() /*end*/ /*end*/
where "@o.id" = any ($1::text[]::/*type id*/ uuid /*end*/[]) and $3::bigint is not null
returning "@o.id:text" as id
