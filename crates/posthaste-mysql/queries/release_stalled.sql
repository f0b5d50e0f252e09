-- Makes locked rows of workers that crashed pending again.
--   $1 ids
update "@outbox"
set /*if locked_by*/ "@locked_by" = null, /*end*/
    "@lease_token" = null,
    "@locked_at" = null,
    /*if version*/ "@version" = coalesce("@version", 0) + 1, /*end*/
    /*if updated_at*/ "@updated_at" = /*as updated_at*/ utc_timestamp(6) /*end*/, /*end*/
    "@status" = '@pending'
where "@id" in ($1)
