-- Asks for the ordered claims of one outbox until the end of the transaction, in which rows are locked and published.
select pg_try_advisory_xact_lock(hashtextextended(
    -- The table itself, whatever path leads to it.
    'posthaste:' || $2::text::regclass::oid::text || ':' || $1::text, 0)) as locked
