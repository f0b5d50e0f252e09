-- Committed and counted likes, and the products for which they differ.
with committed as (
    select product_id, count(*) as n from product_like group by product_id
)
select coalesce(sum(committed.n), 0)::bigint,
       coalesce(sum(statistic.like_count), 0)::bigint,
       count(*) filter (where coalesce(committed.n, 0) <> coalesce(statistic.like_count, 0))
  from committed
  full join product_statistic statistic using (product_id)
