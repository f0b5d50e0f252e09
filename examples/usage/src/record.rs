//! The write path: usage is counted and told in one transaction.

use posthaste::postgres::{PostgresOutbox, PostgresStore};
use posthaste::{EnqueueError, Enqueued, Message, OutboxOptions};
use serde::Serialize;
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

/// What a tenant used.
#[derive(Clone, Debug, Serialize)]
pub struct Usage {
    /// Who.
    pub tenant: Uuid,
    /// The number that the meter gave to this record; a repeated one is the same record.
    pub reading: u64,
    /// How much.
    pub units: i64,
}

/// The outbox of this service.
pub fn outbox(pool: PgPool) -> anyhow::Result<PostgresOutbox> {
    let options = OutboxOptions::new().namespace(crate::NAMESPACE);
    Ok(PostgresStore::with_map(pool, crate::map()?)?.outbox(options))
}

/// Tells of a reading, and counts it if it is new.
pub async fn record(outbox: &PostgresOutbox, tx: &mut PgConnection, usage: &Usage) -> anyhow::Result<Enqueued> {
    let told = enqueue(outbox, tx, usage).await?;
    if told.is_new() {
        sqlx::query(
            "insert into usage_total (tenant, units) values ($1, $2)
             on conflict (tenant) do update set units = usage_total.units + excluded.units",
        )
        .bind(usage.tenant)
        .bind(usage.units)
        .execute(tx)
        .await?;
    }
    Ok(told)
}

async fn enqueue(outbox: &PostgresOutbox, tx: &mut PgConnection, usage: &Usage) -> Result<Enqueued, EnqueueError> {
    let Usage { tenant, reading, units } = usage;
    let payload = serde_json::json!({"tenant": tenant, "reading": reading, "units": units});
    let message = Message::new("usage-recorded", payload.to_string())
        .tenant(tenant.to_string())
        // Begins with the tenant, so that no tenant can take another one's keys.
        .dedupe_key(format!("{tenant}/{reading}"));
    outbox.enqueue(tx, message).await
}
