//! Keeps the statistics and the cache, from the shop's events.

use posthaste::consumer::{Consumer, ConsumerConfig, HandlerError, OffsetReset, Once, Received};
use posthaste::kafka::Connection;
use sqlx::{PgConnection, PgPool};
use tokio_util::sync::CancellationToken;

use crate::cache::Cache;
use crate::tables;
use crate::wire::{Depletion, Like, OrderPaid, TOPICS, View};

const GROUP: &str = "product-statistic";

/// Handles the shop's events until the token fires.
pub async fn run(pool: PgPool, cache: Cache, kafka: &str, stop: CancellationToken) -> anyhow::Result<()> {
    // Statistics begin with the first event, not with the first consumer.
    let config = ConsumerConfig::new(Connection::to(kafka), GROUP, TOPICS).auto_offset_reset(OffsetReset::Earliest);
    let inbox = tables::handled(pool)?;
    let views = Once::by(|event: &Received<View>| {
        // Repeated views of a product count, repeated deliveries of a view do not.
        format!(
            "ProductView/{}_{}/VIEW_COUNT_INCREASED",
            event.payload.product_id, event.id
        )
    });
    Consumer::new(config, inbox)
        .on(
            "acme.order.paid.v1",
            Once::per_aggregate("SALES_COUNT_INCREASED"),
            count_sale,
        )
        .on("acme.product-view.recorded.v1", views, count_view)
        .on_idempotent("acme.like.created.v1", count_like)
        .on_idempotent("acme.like.canceled.v1", uncount_like)
        .on_idempotent(
            "acme.stock.depleted.v1",
            async move |_: &mut PgConnection, event: Received<Depletion>| {
                Ok(cache.clear(event.payload.product_id).await?)
            },
        )
        .run_until(stop)
        .await?;
    Ok(())
}

async fn count_sale(tx: &mut PgConnection, event: Received<OrderPaid>) -> Result<(), HandlerError> {
    let mut items = event.payload.items;
    // Two orders that lock the same statistics in different orders would wait for each other forever.
    items.sort_by_key(|item| item.product_id);
    for item in items {
        sqlx::query(
            "insert into product_statistic (product_id, sales_count) values ($1, $2)
             on conflict (product_id) do update set sales_count = product_statistic.sales_count + excluded.sales_count",
        )
        .bind(item.product_id)
        .bind(item.quantity)
        .execute(&mut *tx)
        .await?;
    }
    Ok(())
}

async fn count_view(tx: &mut PgConnection, event: Received<View>) -> Result<(), HandlerError> {
    sqlx::query(
        "insert into product_statistic (product_id, view_count) values ($1, 1)
         on conflict (product_id) do update set view_count = product_statistic.view_count + 1",
    )
    .bind(event.payload.product_id)
    .execute(tx)
    .await?;
    Ok(())
}

/// Idempotent by nature: a like that is there already is not counted again.
async fn count_like(tx: &mut PgConnection, event: Received<Like>) -> Result<(), HandlerError> {
    let Like { product_id, user_id } = event.payload;
    let new = sqlx::query("insert into counted_like (product_id, user_id) values ($1, $2) on conflict do nothing")
        .bind(product_id)
        .bind(user_id)
        .execute(&mut *tx)
        .await?;
    add_likes(tx, product_id, i64::from(new.rows_affected() == 1)).await
}

/// The same the other way round.
async fn uncount_like(tx: &mut PgConnection, event: Received<Like>) -> Result<(), HandlerError> {
    let Like { product_id, user_id } = event.payload;
    let gone = sqlx::query("delete from counted_like where product_id = $1 and user_id = $2")
        .bind(product_id)
        .bind(user_id)
        .execute(&mut *tx)
        .await?;
    add_likes(tx, product_id, -i64::from(gone.rows_affected() == 1)).await
}

async fn add_likes(tx: &mut PgConnection, product_id: i64, likes: i64) -> Result<(), HandlerError> {
    sqlx::query(
        "insert into product_statistic (product_id, like_count) values ($1, $2)
         on conflict (product_id) do update set like_count = product_statistic.like_count + excluded.like_count",
    )
    .bind(product_id)
    .bind(likes)
    .execute(tx)
    .await?;
    Ok(())
}
