-- The lanes of the pending rows that find_claimable looked at, those with most rows first, and how many rows there were.
--   $1 namespace  $2 unused  $3 whether all topics are served  $4 topics  $5 tenant  $6 limit
--   $7 how many pending rows were looked at  $8 among how many they were chosen
--   $9 whether all lanes were looked at  $10 lanes that were passed over
select topic, ordering_key, cast(sum(count(*)) over () as signed) as seen
from (
    select topic, ordering_key
    from (
        select coalesce("@o.topic:text", '') as topic, "@o.ordering_key:text" as ordering_key, "@o.order:as"
        from "@outbox" o
        where "@o.status" in ('@open')
            /*put o.and_in_scope*/
        order by "@o.order"
        limit $8
    ) w
    where $9 or ordering_key is null or (topic, ordering_key) not in ($10)
    order by "@w.order:ref"
    limit $7
) looked_at
group by topic, ordering_key
order by ordering_key is null, count(*) desc
limit $6
