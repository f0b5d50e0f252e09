-- Forgets what one consumer handled longer ago than the broker can deliver again.
with chosen as materialized (
    select consumer, key
    from "@inbox"
    where consumer = $1 and handled_at < now() - $2::bigint * interval '1 millisecond'
    order by handled_at
    limit $3
    for update skip locked
)
delete from "@inbox" where (consumer, key) in (select * from chosen)
