use axum::extract::{Path, State};
use axum::http::StatusCode;

use super::{Refused, Shop};
use crate::domain::{LikeCanceled, LikeCreated};
use crate::wire::ShopEvent;

/// Liking twice is liking once: only the row that was inserted has an event.
pub async fn like(
    State(shop): State<Shop>,
    Path((product_id, user_id)): Path<(i64, i64)>,
) -> Result<StatusCode, Refused> {
    let mut tx = shop.pool.begin().await?;
    lock(&mut tx, product_id).await?;
    let done = sqlx::query("insert into product_like (product_id, user_id) values ($1, $2) on conflict do nothing")
        .bind(product_id)
        .bind(user_id)
        .execute(&mut *tx)
        .await?;
    if done.rows_affected() == 1 {
        let event = ShopEvent::from(LikeCreated { product_id, user_id });
        shop.outbox.enqueue(&mut tx, event).await?;
    }
    tx.commit().await?;
    Ok(StatusCode::NO_CONTENT)
}

pub async fn unlike(
    State(shop): State<Shop>,
    Path((product_id, user_id)): Path<(i64, i64)>,
) -> Result<StatusCode, Refused> {
    let mut tx = shop.pool.begin().await?;
    lock(&mut tx, product_id).await?;
    let done = sqlx::query("delete from product_like where product_id = $1 and user_id = $2")
        .bind(product_id)
        .bind(user_id)
        .execute(&mut *tx)
        .await?;
    if done.rows_affected() == 1 {
        let event = ShopEvent::from(LikeCanceled { product_id, user_id });
        shop.outbox.enqueue(&mut tx, event).await?;
    }
    tx.commit().await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Order per key is the order of writers who wait for each other: events of one product are enqueued one after the
/// other.
async fn lock(tx: &mut sqlx::PgConnection, product_id: i64) -> Result<(), Refused> {
    let found = sqlx::query("select 1 from product where id = $1 for no key update")
        .bind(product_id)
        .fetch_optional(tx)
        .await?;
    found
        .map(|_| ())
        .ok_or_else(|| Refused::not_found(format!("there is no product {product_id}")))
}
