-- Committed and counted sales, and the products for which they differ.
with committed as (
    select product_id, sum(quantity)::bigint as n
      from order_item join orders on orders.id = order_item.order_id
     where paid
     group by product_id
)
select coalesce(sum(committed.n), 0)::bigint,
       coalesce(sum(statistic.sales_count), 0)::bigint,
       count(*) filter (where coalesce(committed.n, 0) <> coalesce(statistic.sales_count, 0))
  from committed
  full join product_statistic statistic using (product_id)
