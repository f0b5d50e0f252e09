-- Asks to be the one who moves this cursor, for as long as this connection lives.
--   $1 the cursor's table  $2 the shard, where there are shards
select pg_try_advisory_lock(hashtextextended(
    'posthaste:log:' || $1::text::regclass::oid::text /*if shard*/ || ':' || $2::integer::text /*end*/, 0
)) as locked
