-- Takes locked rows under a lease and counts the attempt.
--   $1 ids  $2 worker  $3 fence  $4 lease in ms
update "@outbox"
set "@attempts" = coalesce("@attempts", 0) + 1,
    /*if locked_by*/ "@locked_by" = $2, /*end*/
    "@lease_token" = $3,
    /*if locked_until*/ "@locked_until" = /*as locked_until*/ timestampadd(microsecond, $4 * 1000, utc_timestamp(6)) /*end*/, /*end*/
    /*if locked_at*/ "@locked_at" = /*as locked_at*/ utc_timestamp(6) /*end*/, /*end*/
    /*if version*/ "@version" = coalesce("@version", 0) + 1, /*end*/
    /*if updated_at*/ "@updated_at" = /*as updated_at*/ utc_timestamp(6) /*end*/, /*end*/
    "@status" = '@processing'
where "@id" in ($1)
