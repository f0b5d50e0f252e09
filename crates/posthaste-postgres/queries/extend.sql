-- Prolongs leases that are still held under the token.
update "@outbox"
set "@locked_until" = now() + $3::bigint * interval '1 millisecond', "@updated_at" = now()
where "@id" = any ($1) and "@lease_token" = $2 and "@status" = '@processing'
returning "@id" as id
