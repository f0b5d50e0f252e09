-- Lets one move at a time be at work; what it has locked would else be in the way of the other's.
select pg_try_advisory_xact_lock(hashtextextended('posthaste:move:' || '@schema', 0))
