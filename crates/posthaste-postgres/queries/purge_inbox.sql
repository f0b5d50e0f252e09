-- Forgets what was handled longer ago than the broker can deliver again.
with chosen as materialized (
    select consumer, key
    from "@inbox"
    where handled_at < now() - $1::bigint * interval '1 millisecond'
    order by handled_at
    limit $2
    for update skip locked
)
delete from "@inbox" where (consumer, key) in (select * from chosen)
