-- Committed and counted views, and the products for which they differ.
with committed as (
    select product_id, count(*) as n from product_view group by product_id
)
select coalesce(sum(committed.n), 0)::bigint,
       coalesce(sum(statistic.view_count), 0)::bigint,
       count(*) filter (where coalesce(committed.n, 0) <> coalesce(statistic.view_count, 0))
  from committed
  full join product_statistic statistic using (product_id)
