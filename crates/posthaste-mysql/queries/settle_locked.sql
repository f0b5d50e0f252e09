-- Applies one verdict to rows that the transaction kept locked while they were published, and counts the attempt.
--   $1 ids  $2 verdict  $3 delay in ms  $4 error
update "@outbox"
set /*if attempts*/ "@attempts" = coalesce("@attempts", 0)
        + case when $2 in ('retry' /*if retries*/ /*else*/, 'delivered', 'dead' /*end*/) then 1 else 0 end, /*end*/
    /*if next_attempt_at*/ "@next_attempt_at" = case when $2 in ('retry', 'postponed')
        -- What waits lies strictly after created_at: that is what marks a row as waiting.
        then /*as next_attempt_at*/ greatest(
            timestampadd(microsecond, $3 * 1000, utc_timestamp(6)),
            timestampadd(microsecond, 1, /*if created_at*/ coalesce("@created_at:time", utc_timestamp(6)) /*else*/ utc_timestamp(6) /*end*/)
        ) /*end*/
        else "@next_attempt_at" end, /*end*/
    /*if last_error*/ "@last_error" = coalesce($4, "@last_error"), /*end*/
    /*if delivered_at*/ "@delivered_at" = case when $2 = 'delivered' then /*as delivered_at*/ utc_timestamp(6) /*end*/ end, /*end*/
    /*if version*/ "@version" = coalesce("@version", 0) + 1, /*end*/
    /*if updated_at*/ "@updated_at" = /*as updated_at*/ utc_timestamp(6) /*end*/, /*end*/
    "@status" = case $2 when 'delivered' then '@delivered' when 'dead' then '@dead' when 'released' then '@pending' else '@waiting' end
where "@id" in ($1)
