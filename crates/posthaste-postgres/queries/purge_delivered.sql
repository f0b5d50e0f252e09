-- Removes delivered rows past their retention, oldest first.
with chosen as materialized (
    select "@id" as id
    from "@outbox"
    where "@status" = '@delivered' and "@delivered_at" < now() - $1::bigint * interval '1 millisecond'
    order by "@delivered_at"
    limit $2
    for update skip locked
)
delete from "@outbox" where "@id" = any (array(select id from chosen))
