-- Gives up locked rows that have used all their attempts.
--   $1 ids  $2 error, where there is none yet  $3 added to attempts of a row that was claimed
update "@outbox"
set /*if lease_token*/ "@attempts" = "@attempts" + case when "@status" = '@processing' then $3 else 0 end, /*end*/
    /*if locked_by*/ "@locked_by" = null, /*end*/
    /*if lease_token*/ "@lease_token" = null, /*end*/
    /*if locked_until*/ "@locked_until" = null, /*end*/
    /*if locked_at*/ "@locked_at" = null, /*end*/
    /*if last_error*/ "@last_error" = coalesce("@last_error", $2), /*end*/
    /*if version*/ "@version" = coalesce("@version", 0) + 1, /*end*/
    /*if updated_at*/ "@updated_at" = /*as updated_at*/ utc_timestamp(6) /*end*/, /*end*/
    "@status" = '@dead'
where "@id" in ($1)
