-- Serialises the ordered claims of one outbox until the end of the transaction. Another claim may take its time; whoever has
-- locked the table as a whole is not waited for as long.
select set_config('lock_timeout', '1s', true) from pg_advisory_xact_lock(hashtextextended(/*if migrations*/ $1 /*else*/
    -- The table itself, whatever path leads to it.
    'posthaste:' || $2::text::regclass::oid::text || ':' || $1::text /*end*/, 0))
