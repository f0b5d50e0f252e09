-- Prolongs the leases of locked rows.
--   $1 ids  $2 lease in ms
update "@outbox"
set /*if locked_until*/ "@locked_until" = /*as locked_until*/ timestampadd(microsecond, $2 * 1000, utc_timestamp(6)) /*end*/, /*end*/
    /*if locked_at*/ "@locked_at" = /*as locked_at*/ utc_timestamp(6) /*end*/, /*end*/
    /*if updated_at*/ "@updated_at" = /*as updated_at*/ utc_timestamp(6) /*end*/, /*end*/
    "@status" = '@processing'
where "@id" in ($1)
