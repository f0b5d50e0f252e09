-- Removes rows of the log that are settled and old; only where the relay is told to.
--   $1 age in ms  $2 limit  $3 the stored cursor
delete from "@outbox"
where "@id" = any (array(
    select "@o.id"
    from "@outbox" o
    where "@o.id" <= $3::bigint and "@o.created_at:time" < now() - $1::bigint * interval '1 millisecond'
    order by "@o.id"
    limit $2
))
