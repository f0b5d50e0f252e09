-- Begins locked dead rows again at their old place in the order.
--   $1 ids
update "@outbox"
set /*if attempts*/ "@attempts" = 0, /*end*/
    -- Due at once, but waiting by kind: followers that wait already must not overtake it.
    /*if next_attempt_at*/ "@next_attempt_at" = /*as next_attempt_at*/ greatest(
        utc_timestamp(6),
        /*if created_at*/
        -- Nothing is worked out from what is past: it may be no date, which the server refuses.
        case when "@created_at:time" >= utc_timestamp(6) then timestampadd(microsecond, 1, "@created_at:time") else utc_timestamp(6) end
        /*else*/ utc_timestamp(6) /*end*/
    ) /*end*/, /*end*/
    /*if version*/ "@version" = coalesce("@version", 0) + 1, /*end*/
    /*if updated_at*/ "@updated_at" = /*as updated_at*/ utc_timestamp(6) /*end*/, /*end*/
    "@status" = '@pending'
where "@id" in ($1)
