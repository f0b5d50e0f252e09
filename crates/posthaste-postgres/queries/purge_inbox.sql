-- Forgets what was handled longer ago than the broker can deliver again.
delete from "@inbox" i
using (
    select consumer, key
    from "@inbox"
    where handled_at < now() - $1::bigint * interval '1 millisecond'
    order by handled_at
    limit $2
    for update skip locked
) old
where (i.consumer, i.key) = (old.consumer, old.key)
