-- Retries that were delivered.
delete from "@failed" where "@failed/id" = any ($1::bigint[])
