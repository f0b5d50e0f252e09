//! Who serves this outbox, and who leads.

use std::time::Duration;

use posthaste_core::breaker::CircuitState;
use posthaste_core::store::{FORGOTTEN_AFTER, LeadRequest, Leadership, RelayBeat, RelayRecord};
use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::PostgresStore;
use crate::rows::millis;
use crate::statements::Registry;

impl PostgresStore {
    pub(crate) async fn write_beat(&self, beat: &RelayBeat) -> sqlx::Result<()> {
        let Some(registry) = &self.statements.registry else {
            return Ok(());
        };
        let query = registry
            .beat
            .query()
            .bind(beat.worker.as_uuid())
            .bind(&beat.namespace)
            .bind(&beat.publisher)
            .bind(&beat.host)
            .bind(i64::from(beat.pid))
            .bind(&beat.version)
            .bind(beat.circuit.word())
            .bind(millis(beat.circuit_lasted))
            .bind(beat.circuit_reason.as_ref().map(|reason| reason.replace('\0', " ")))
            .bind(millis(FORGOTTEN_AFTER));
        self.execute(query).await.map(drop)
    }

    pub(crate) async fn ask_to_lead(&self, registry: &Registry, request: &LeadRequest) -> sqlx::Result<Leadership> {
        loop {
            let query = registry
                .leader
                .query()
                .bind(&request.namespace)
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
                .lead
                .query()
                .bind(&request.namespace)
                .bind(request.worker.as_uuid())
                .bind(millis(request.lease));
            let taken = self.fetch_optional(query).await?;
            if taken.is_some() {
                return Ok(Leadership::Held);
            }
            // Somebody was quicker; the next look says who.
        }
    }
}

pub(crate) fn relay(row: &PgRow) -> sqlx::Result<RelayRecord> {
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
        circuit: CircuitState::from_word(&circuit).ok_or_else(|| sqlx::Error::ColumnDecode {
            index: "circuit".to_owned(),
            source: format!("`{circuit}` is not a state of a circuit").into(),
        })?,
        circuit_since: row.try_get("circuit_since")?,
        circuit_reason: row.try_get("circuit_reason")?,
        leads: row.try_get("leads")?,
    })
}
