-- Serialises the ordered claims of one outbox, until the lock is released or the connection ends.
--   $1 schema, or none for that of the connection  $2 table  $3 namespace  $4 how many seconds to wait for it
select get_lock(concat('posthaste:', left(sha2(concat_ws('/', coalesce($1, database()), $2, $3), 256), 40)), $4) as locked
