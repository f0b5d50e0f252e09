//! The write path: an order and its event in one transaction.

use serde::{Deserialize, Serialize};
use serde_json::json;
use sqlx::PgConnection;
use uuid::Uuid;

/// What a customer wants.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NewOrder {
    /// Who.
    pub customer: String,
    /// For how much.
    pub cents: i64,
}

/// An order that was written.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Placed {
    /// The order.
    pub order: Uuid,
    /// The row of its event, under whose id the event is published.
    pub event: Uuid,
}

/// Writes an order and its event. Both are there once the caller commits, or neither.
pub async fn place(tx: &mut PgConnection, new: &NewOrder) -> sqlx::Result<Placed> {
    let placed = Placed {
        order: Uuid::now_v7(),
        event: Uuid::now_v7(),
    };
    sqlx::query("insert into orders (id, customer, cents) values ($1, $2, $3)")
        .bind(placed.order)
        .bind(&new.customer)
        .bind(new.cents)
        .execute(&mut *tx)
        .await?;
    let payload = json!({"orderId": placed.order, "customer": new.customer, "cents": new.cents});
    sqlx::query(
        "insert into outbox (id, aggregate_type, aggregate_id, event_type, payload, status, created_at)
         values ($1, 'Order', $2, 'OrderCreated', $3, 'NEW', now() at time zone 'utc')",
    )
    .bind(placed.event)
    .bind(placed.order)
    .bind(payload.to_string())
    .execute(tx)
    .await?;
    Ok(placed)
}
