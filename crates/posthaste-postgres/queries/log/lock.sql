-- Asks to be the one who moves this cursor, for as long as this connection lives.
--   $1 the cursor's table
select pg_try_advisory_lock(hashtextextended('posthaste:log:' || $1::text::regclass::oid::text, 0)) as locked
