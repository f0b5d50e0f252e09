-- Asks to be the log's one reader, for as long as this connection lives.
select pg_try_advisory_lock(hashtextextended('posthaste:log:' || $1::text::regclass::oid::text, 0)) as locked
