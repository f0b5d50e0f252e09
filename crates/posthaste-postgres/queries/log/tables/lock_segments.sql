-- One at a time looks after the segments.
select pg_try_advisory_lock(hashtextextended('posthaste:segments', '@schema.log'::regclass::oid::bigint))
