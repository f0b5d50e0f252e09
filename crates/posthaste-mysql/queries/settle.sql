-- Applies one change to locked rows. It is decided before; null leaves a column as it is.
--   $1 ids  $2 new state  $3 added to attempts  $4 wait in ms  $5 error  $6 whether delivered
update "@outbox"
set /*if attempts*/ "@attempts" = coalesce("@attempts", 0) + $3, /*end*/
    /*if next_attempt_at*/ "@next_attempt_at" = case when $4 is null then "@next_attempt_at"
        -- What waits lies strictly after created_at: that is what marks a row as waiting.
        else /*as next_attempt_at*/ greatest(
            timestampadd(microsecond, $4 * 1000, utc_timestamp(6)),
            /*if created_at*/
            -- Nothing is worked out from what is past: it may be no date, which the server refuses.
            case when "@created_at:time" >= utc_timestamp(6) then timestampadd(microsecond, 1, "@created_at:time") else utc_timestamp(6) end
            /*else*/ utc_timestamp(6) /*end*/
        ) /*end*/ end, /*end*/
    /*if locked_by*/ "@locked_by" = null, /*end*/
    /*if lease_token*/ "@lease_token" = null, /*end*/
    /*if locked_until*/ "@locked_until" = null, /*end*/
    /*if locked_at*/ "@locked_at" = null, /*end*/
    /*if last_error*/ "@last_error" = coalesce($5, "@last_error"), /*end*/
    /*if delivered_at*/ "@delivered_at" = case when $6 then /*as delivered_at*/ utc_timestamp(6) /*end*/ end, /*end*/
    /*if version*/ "@version" = coalesce("@version", 0) + 1, /*end*/
    /*if updated_at*/ "@updated_at" = /*as updated_at*/ utc_timestamp(6) /*end*/, /*end*/
    "@status" = case $2 when 'pending' then '@pending' when 'waiting' then '@waiting'
        when 'delivered' then '@delivered' when 'dead' then '@dead' else "@status" end
where "@id" in ($1)
