-- Retries that were delivered. Locks of other transactions are not waited for: a condition without columns comes before the
-- first row.
--   $1 ids
delete from "@failed"
where (select set_config('lock_timeout', '100ms', true)) is not null and "@failed/id" = any ($1::bigint[])
