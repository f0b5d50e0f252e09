-- Serialises the ordered claims of one outbox until the end of the transaction.
select pg_advisory_xact_lock(hashtextextended(/*if migrations*/ $1 /*else*/
    -- The table itself, whatever path leads to it.
    'posthaste:' || $2::text::regclass::oid::text || ':' || $1::text /*end*/, 0))
