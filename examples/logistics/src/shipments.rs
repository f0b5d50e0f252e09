//! The write path: a shipment moves, and the event tells it, in one transaction.

use serde_json::json;
use sqlx::PgConnection;
use uuid::Uuid;

/// Writes where a shipment is now, and the event. Returns the event's id.
pub async fn move_to(tx: &mut PgConnection, shipment: Uuid, place: &str) -> sqlx::Result<Uuid> {
    sqlx::query(
        "insert into shipments (id, place) values ($1, $2) on conflict (id) do update set place = excluded.place",
    )
    .bind(shipment)
    .bind(place)
    .execute(&mut *tx)
    .await?;
    let event = Uuid::now_v7();
    sqlx::query(
        "insert into outbox_events (id, aggregate_type, aggregate_id, event_type, payload)
         values ($1, 'Shipment', $2, 'ShipmentMoved', $3)",
    )
    .bind(event)
    .bind(shipment)
    .bind(json!({"shipment": shipment, "place": place}))
    .execute(tx)
    .await?;
    Ok(event)
}
