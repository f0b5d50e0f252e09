//! Who serves this outbox, and who leads.

use std::time::Duration;

use async_trait::async_trait;
use posthaste_core::StoreError;
use posthaste_core::breaker::CircuitState;
use posthaste_core::store::{
    FORGOTTEN_AFTER, LeadRequest, Leadership, RelayHeartbeat, RelayRecord, RelayRegistry, WorkerId,
};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;
use uuid::fmt::Hyphenated;

use crate::SqliteStore;
use crate::begin::begin;
use crate::error::store_error;
use crate::rows::{millis, time, undecodable};
use crate::statements::Registry;

#[async_trait]
impl RelayRegistry for SqliteStore {
    async fn heartbeat(&self, heartbeat: &RelayHeartbeat) -> Result<(), StoreError> {
        self.write_heartbeat(self.registry_statements()?, heartbeat)
            .await
            .map_err(store_error)
    }

    async fn elect_leader(&self, request: &LeadRequest) -> Result<Leadership, StoreError> {
        self.ask_to_lead(self.registry_statements()?, request)
            .await
            .map_err(store_error)
    }

    async fn deregister(&self, worker: WorkerId) -> Result<(), StoreError> {
        self.remove_relay(self.registry_statements()?, worker)
            .await
            .map_err(store_error)
    }

    async fn relays(&self, namespace: &str) -> Result<Vec<RelayRecord>, StoreError> {
        let rows = sqlx::query(self.registry_statements()?.relays.sql()).bind(namespace.to_owned());
        let rows = rows.fetch_all(&self.pool).await;
        rows.and_then(|rows| rows.iter().map(relay).collect())
            .map_err(store_error)
    }
}

impl SqliteStore {
    fn registry_statements(&self) -> Result<&Registry, StoreError> {
        let registry = self.statements.registry.as_ref();
        registry.ok_or_else(|| self.map.needs_native_tables("the list of relays"))
    }

    async fn write_heartbeat(&self, registry: &Registry, heartbeat: &RelayHeartbeat) -> sqlx::Result<()> {
        let mut tx = begin(&self.pool).await?;
        sqlx::query(registry.heartbeat.sql())
            .bind(heartbeat.worker.as_uuid().hyphenated())
            .bind(&heartbeat.namespace)
            .bind(&heartbeat.publisher)
            .bind(&heartbeat.host)
            .bind(i64::from(heartbeat.pid))
            .bind(&heartbeat.version)
            .bind(heartbeat.circuit.as_str())
            .bind(millis(heartbeat.circuit_lasted))
            .bind(
                heartbeat
                    .circuit_reason
                    .as_ref()
                    .map(|reason| reason.replace('\0', " ")),
            )
            .execute(&mut *tx)
            .await?;
        sqlx::query(registry.forget_relays.sql())
            .bind(heartbeat.worker.as_uuid().hyphenated())
            .bind(millis(FORGOTTEN_AFTER))
            .execute(&mut *tx)
            .await?;
        tx.commit().await
    }

    async fn ask_to_lead(&self, registry: &Registry, request: &LeadRequest) -> sqlx::Result<Leadership> {
        loop {
            let leader = sqlx::query(registry.leader.sql())
                .bind(request.key().into_owned())
                .bind(request.worker.as_uuid().hyphenated())
                .fetch_optional(&self.pool)
                .await?;
            if let Some(row) = leader {
                let left: i64 = row.try_get("left_ms")?;
                return Ok(Leadership::HeldBy {
                    worker: row.try_get::<Hyphenated, _>("worker")?.into_uuid(),
                    left: Duration::from_millis(u64::try_from(left).unwrap_or(0)),
                });
            }
            // All of it: the driver ends a statement after its first row without a word on whether that was committed.
            let taken = sqlx::query(registry.elect_leader.sql())
                .bind(request.key().into_owned())
                .bind(request.worker.as_uuid().hyphenated())
                .bind(millis(request.lease))
                .fetch_all(&self.pool)
                .await?;
            if !taken.is_empty() {
                return Ok(Leadership::Held);
            }
            // Another relay was quicker; the next look says who.
        }
    }

    async fn remove_relay(&self, registry: &Registry, worker: WorkerId) -> sqlx::Result<()> {
        let mut tx = begin(&self.pool).await?;
        for statement in [&registry.step_down, &registry.deregister] {
            sqlx::query(statement.sql())
                .bind(worker.as_uuid().hyphenated())
                .execute(&mut *tx)
                .await?;
        }
        tx.commit().await
    }
}

fn relay(row: &SqliteRow) -> sqlx::Result<RelayRecord> {
    let circuit: String = row.try_get("circuit")?;
    let silent: i64 = row.try_get("silent_ms")?;
    Ok(RelayRecord {
        worker: row.try_get::<Hyphenated, _>("worker")?.into_uuid(),
        namespace: row.try_get("namespace")?,
        publisher: row.try_get("publisher")?,
        host: row.try_get("host")?,
        pid: u32::try_from(row.try_get::<i64, _>("pid")?).unwrap_or_default(),
        version: row.try_get("version")?,
        started_at: time(row, "started_at")?,
        seen_at: time(row, "seen_at")?,
        silent_seconds: Duration::from_millis(u64::try_from(silent).unwrap_or(0)).as_secs_f64(),
        circuit: CircuitState::parse(&circuit)
            .ok_or_else(|| undecodable("circuit", format!("`{circuit}` is not a state of a circuit")))?,
        circuit_since: time(row, "circuit_since")?,
        circuit_reason: row.try_get("circuit_reason")?,
        leads: row.try_get("leads")?,
    })
}
