//! Who serves this outbox, and who leads.

use std::time::Duration;

use async_trait::async_trait;
use posthaste_core::StoreError;
use posthaste_core::breaker::CircuitState;
use posthaste_core::store::{
    FORGOTTEN_AFTER, LeadRequest, Leadership, RelayHeartbeat, RelayRecord, RelayRegistry, WorkerId,
};
use sqlx::mysql::MySqlRow;
use sqlx::pool::PoolConnection;
use sqlx::{Executor, MySql, MySqlConnection, Row};
use uuid::Uuid;

use crate::MySqlStore;
use crate::error::store_error;
use crate::retry::retrying;
use crate::rows::{millis, undecodable};
use crate::statement::Value;
use crate::statements::Needed;

/// Another session that has locked the tables of relays as a whole is not waited for: the calls would pile up, one connection
/// each, until none is left for messages.
const BRIEF: &str = "set @posthaste_lock_wait_timeout = @@session.lock_wait_timeout, session lock_wait_timeout = 1";
const AS_BEFORE: &str = "set session lock_wait_timeout = @posthaste_lock_wait_timeout";

#[async_trait]
impl RelayRegistry for MySqlStore {
    async fn heartbeat(&self, heartbeat: &RelayHeartbeat) -> Result<(), StoreError> {
        self.check_registry()?;
        retrying!(self.write_heartbeat(heartbeat)).map_err(store_error)
    }

    async fn elect_leader(&self, request: &LeadRequest) -> Result<Leadership, StoreError> {
        self.check_registry()?;
        retrying!(self.ask_to_lead(request)).map_err(store_error)
    }

    async fn deregister(&self, worker: WorkerId) -> Result<(), StoreError> {
        self.check_registry()?;
        retrying!(self.remove_relay(worker)).map_err(store_error)
    }

    async fn relays(&self, namespace: &str) -> Result<Vec<RelayRecord>, StoreError> {
        self.check_registry()?;
        self.list_relays(namespace).await.map_err(store_error)
    }
}

impl MySqlStore {
    fn check_registry(&self) -> Result<(), StoreError> {
        if self.statements.registry.is_none() {
            return Err(self.map.needs_native_tables("the list of relays"));
        }
        Ok(())
    }

    /// A connection that waits for no table for long.
    async fn brief(&self) -> sqlx::Result<PoolConnection<MySql>> {
        let mut conn = self.pool.acquire().await?;
        conn.execute(BRIEF).await?;
        Ok(conn)
    }

    /// The connection goes back to the pool as it was, also if its work has failed. One that is cut off while it works keeps its
    /// short wait, which does no harm.
    async fn as_before<T>(mut conn: PoolConnection<MySql>, done: sqlx::Result<T>) -> sqlx::Result<T> {
        let undone = conn.execute(AS_BEFORE).await;
        let done = done?;
        undone.map(|_| done)
    }

    async fn list_relays(&self, namespace: &str) -> sqlx::Result<Vec<RelayRecord>> {
        let registry = self.statements.registry.needed()?;
        let mut conn = self.pool.acquire().await?;
        let rows = registry.relays.fetch_all(&mut conn, &[namespace.into()]).await?;
        rows.iter().map(relay).collect()
    }

    async fn write_heartbeat(&self, heartbeat: &RelayHeartbeat) -> sqlx::Result<()> {
        let registry = self.statements.registry.needed()?;
        let worker = heartbeat.worker.as_uuid().to_string();
        let mut conn = self.brief().await?;
        let reason = heartbeat
            .circuit_reason
            .as_ref()
            .map(|reason| reason.replace('\0', " "));
        let values = [
            worker.as_str().into(),
            heartbeat.namespace.as_str().into(),
            heartbeat.publisher.as_str().into(),
            heartbeat.host.as_str().into(),
            heartbeat.pid.into(),
            heartbeat.version.as_str().into(),
            heartbeat.circuit.as_str().into(),
            millis(heartbeat.circuit_lasted).into(),
            Value::Text(reason),
        ];
        let silent = [worker.into(), millis(FORGOTTEN_AFTER).into()];
        let written = async {
            registry.heartbeat.execute(&mut conn, &values).await?;
            registry.forget_relays.execute(&mut conn, &silent).await.map(drop)
        };
        let written = written.await;
        Self::as_before(conn, written).await
    }

    async fn ask_to_lead(&self, request: &LeadRequest) -> sqlx::Result<Leadership> {
        let mut conn = self.brief().await?;
        let answer = self.ask_to_lead_on(&mut conn, request).await;
        Self::as_before(conn, answer).await
    }

    async fn ask_to_lead_on(&self, conn: &mut MySqlConnection, request: &LeadRequest) -> sqlx::Result<Leadership> {
        let leaders = self.statements.leaders.needed()?;
        let mut asked = vec![(*request.key()).into(), request.worker.as_uuid().to_string().into()];
        if let Some(leader) = leaders.leader.fetch_all(&mut *conn, &asked).await?.first() {
            return held_by(leader);
        }
        asked.push(millis(request.lease).into());
        leaders.elect_leader.execute(&mut *conn, &asked).await?;
        // The row says who was quicker.
        asked.pop();
        match leaders.leader.fetch_all(&mut *conn, &asked).await?.first() {
            Some(leader) => held_by(leader),
            None => Ok(Leadership::Held),
        }
    }

    async fn remove_relay(&self, worker: WorkerId) -> sqlx::Result<()> {
        let registry = self.statements.registry.needed()?;
        let leaders = self.statements.leaders.needed()?;
        let worker = [worker.as_uuid().to_string().into()];
        let mut conn = self.brief().await?;
        let removed = async {
            leaders.step_down.execute(&mut conn, &worker).await?;
            registry.deregister.execute(&mut conn, &worker).await.map(drop)
        };
        let removed = removed.await;
        Self::as_before(conn, removed).await
    }
}

fn held_by(row: &MySqlRow) -> sqlx::Result<Leadership> {
    let left: i64 = row.try_get("left_ms")?;
    Ok(Leadership::HeldBy {
        worker: uuid(row, "worker")?,
        left: Duration::from_millis(u64::try_from(left).unwrap_or(0)),
    })
}

fn relay(row: &MySqlRow) -> sqlx::Result<RelayRecord> {
    let circuit: String = row.try_get("circuit")?;
    let silent: i64 = row.try_get("silent_us")?;
    Ok(RelayRecord {
        worker: uuid(row, "worker")?,
        namespace: row.try_get("namespace")?,
        publisher: row.try_get("publisher")?,
        host: row.try_get("host")?,
        pid: u32::try_from(row.try_get::<i64, _>("pid")?).unwrap_or_default(),
        version: row.try_get("version")?,
        started_at: row.try_get("started_at")?,
        seen_at: row.try_get("seen_at")?,
        silent_seconds: Duration::from_micros(silent.unsigned_abs()).as_secs_f64(),
        circuit: CircuitState::parse(&circuit)
            .ok_or_else(|| undecodable("circuit", format!("`{circuit}` is not a state of a circuit")))?,
        circuit_since: row.try_get("circuit_since")?,
        circuit_reason: row.try_get("circuit_reason")?,
        leads: row.try_get("leads")?,
    })
}

fn uuid(row: &MySqlRow, column: &str) -> sqlx::Result<Uuid> {
    let text: String = row.try_get(column)?;
    text.parse()
        .map_err(|error: uuid::Error| undecodable(column, error.to_string()))
}
