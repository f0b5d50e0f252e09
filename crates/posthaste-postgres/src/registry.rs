//! Who serves this outbox, and who leads.

use std::time::Duration;

use async_trait::async_trait;
use posthaste_core::StoreError;
use posthaste_core::breaker::CircuitState;
use posthaste_core::store::{
    FORGOTTEN_AFTER, LeadRequest, Leadership, RelayHeartbeat, RelayRecord, RelayRegistry, WorkerId,
};
use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::PostgresStore;
use crate::error::store_error;
use crate::rows::millis;
use crate::statements::Registry;

#[async_trait]
impl RelayRegistry for PostgresStore {
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
        let leaving = self.registry_statements()?.deregister.query().bind(worker.as_uuid());
        self.execute(leaving).await.map(drop).map_err(store_error)
    }

    async fn relays(&self, namespace: &str) -> Result<Vec<RelayRecord>, StoreError> {
        let query = self.registry_statements()?.relays.query().bind(namespace);
        let rows = self.fetch_all(query).await;
        rows.and_then(|rows| rows.iter().map(relay).collect())
            .map_err(store_error)
    }
}

impl PostgresStore {
    fn registry_statements(&self) -> Result<&Registry, StoreError> {
        let registry = self.statements.registry.as_ref();
        registry.ok_or_else(|| self.map.needs_native_tables("the list of relays"))
    }

    async fn write_heartbeat(&self, registry: &Registry, heartbeat: &RelayHeartbeat) -> sqlx::Result<()> {
        let query = registry
            .heartbeat
            .query()
            .bind(heartbeat.worker.as_uuid())
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
            .bind(millis(FORGOTTEN_AFTER));
        self.execute(query).await.map(drop)
    }

    async fn ask_to_lead(&self, registry: &Registry, request: &LeadRequest) -> sqlx::Result<Leadership> {
        loop {
            let query = registry
                .leader
                .query()
                .bind(request.key().into_owned())
                .bind(request.worker.as_uuid());
            let leader = self.fetch_optional(query).await?;
            if let Some(row) = leader {
                let left: i64 = row.try_get("left_ms")?;
                return Ok(Leadership::HeldBy {
                    worker: row.try_get("worker")?,
                    left: Duration::from_millis(u64::try_from(left).unwrap_or(0)),
                });
            }
            let query = registry
                .elect_leader
                .query()
                .bind(request.key().into_owned())
                .bind(request.worker.as_uuid())
                .bind(millis(request.lease));
            let taken = self.fetch_optional(query).await?;
            if taken.is_some() {
                return Ok(Leadership::Held);
            }
            // Another relay was quicker; the next look says who.
        }
    }
}

fn relay(row: &PgRow) -> sqlx::Result<RelayRecord> {
    let circuit: String = row.try_get("circuit")?;
    Ok(RelayRecord {
        worker: row.try_get("worker")?,
        namespace: row.try_get("namespace")?,
        publisher: row.try_get("publisher")?,
        host: row.try_get("host")?,
        pid: u32::try_from(row.try_get::<i64, _>("pid")?).unwrap_or_default(),
        version: row.try_get("version")?,
        started_at: row.try_get("started_at")?,
        seen_at: row.try_get("seen_at")?,
        silent_seconds: row.try_get("silent_seconds")?,
        circuit: CircuitState::parse(&circuit).ok_or_else(|| sqlx::Error::ColumnDecode {
            index: "circuit".to_owned(),
            source: format!("`{circuit}` is not a state of a circuit").into(),
        })?,
        circuit_since: row.try_get("circuit_since")?,
        circuit_reason: row.try_get("circuit_reason")?,
        leads: row.try_get("leads")?,
    })
}
