-- Says that this instance is there, for as long as this connection lives: nothing is written, and whoever dies is gone.
--   $1 the table of shards  $2 the instance
select pg_try_advisory_lock(
    hashtext('posthaste:log_seats:' || $1::text::regclass::oid::text), ('x' || right($2::text, 8))::bit(32)::integer
) as registered
