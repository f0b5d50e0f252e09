use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use uuid::Uuid;

use super::{Refused, Shop};
use crate::domain::{Item, OrderCreated, OrderPaid, StockDepleted};
use crate::wire::{self, ShopEvent};

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NewOrder {
    /// Made by the client, so that a repeated request is the same order.
    order_id: Uuid,
    user_id: i64,
    items: Vec<wire::Item>,
}

/// Takes the items out of stock, or refuses the whole order.
pub async fn create(State(shop): State<Shop>, Json(mut order): Json<NewOrder>) -> Result<StatusCode, Refused> {
    // Two orders that lock the same products in different orders would wait for each other forever.
    order.items.sort_by_key(|item| item.product_id);
    let mut tx = shop.pool.begin().await?;
    let new = sqlx::query("insert into orders (id, user_id) values ($1, $2) on conflict do nothing")
        .bind(order.order_id)
        .bind(order.user_id)
        .execute(&mut *tx)
        .await?;
    if new.rows_affected() == 0 {
        return Ok(StatusCode::OK);
    }
    let mut items = Vec::new();
    for wire::Item { product_id, quantity } in order.items {
        let item = Item { product_id, quantity };
        let left = take(&mut tx, order.order_id, item).await?;
        if left == 0 {
            let event = ShopEvent::from(StockDepleted { product_id });
            shop.outbox.enqueue(&mut tx, event).await?;
        }
        items.push(item);
    }
    let event = ShopEvent::from(OrderCreated {
        order_id: order.order_id,
        user_id: order.user_id,
        items,
    });
    shop.outbox.enqueue(&mut tx, event).await?;
    tx.commit().await?;
    Ok(StatusCode::CREATED)
}

/// Takes one item out of stock and returns how much is left.
async fn take(tx: &mut PgConnection, order_id: Uuid, item: Item) -> Result<i64, Refused> {
    let left: Option<i64> =
        sqlx::query_scalar("update product set stock = stock - $2 where id = $1 and stock >= $2 returning stock")
            .bind(item.product_id)
            .bind(item.quantity)
            .fetch_optional(&mut *tx)
            .await?;
    let left = left.ok_or_else(|| Refused::conflict(format!("product {} is sold out", item.product_id)))?;
    sqlx::query("insert into order_item (order_id, product_id, quantity) values ($1, $2, $3)")
        .bind(order_id)
        .bind(item.product_id)
        .bind(item.quantity)
        .execute(tx)
        .await?;
    Ok(left)
}

/// Paying twice is paying once.
pub async fn pay(State(shop): State<Shop>, Path(order_id): Path<Uuid>) -> Result<StatusCode, Refused> {
    let mut tx = shop.pool.begin().await?;
    let paid = sqlx::query("update orders set paid = true where id = $1 and not paid")
        .bind(order_id)
        .execute(&mut *tx)
        .await?;
    if paid.rows_affected() == 1 {
        let items = sqlx::query_as("select product_id, quantity from order_item where order_id = $1")
            .bind(order_id)
            .fetch_all(&mut *tx)
            .await?;
        let items = items
            .into_iter()
            .map(|(product_id, quantity)| Item { product_id, quantity });
        let event = ShopEvent::from(OrderPaid {
            order_id,
            items: items.collect(),
        });
        shop.outbox.enqueue(&mut tx, event).await?;
    }
    tx.commit().await?;
    Ok(StatusCode::NO_CONTENT)
}
