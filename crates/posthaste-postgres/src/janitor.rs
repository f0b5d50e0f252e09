//! Who looks after an existing table, which has no place to say so: an advisory lock of a connection of its own, which ends
//! with its holder.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use posthaste_core::store::{LeadRequest, Leadership, WorkerId};
use posthaste_sql::table::Table;
use sqlx::{ConnectOptions, Connection, PgConnection};
use tokio::sync::Mutex;
use uuid::Uuid;

use crate::PostgresStore;
use crate::pooling::Pooling;
use crate::rows::millis;

/// What relays of this process look after, by the name of the lock.
#[derive(Debug, Default)]
pub(crate) struct JanitorLocks(Mutex<HashMap<String, Held>>);

#[derive(Debug)]
struct Held {
    worker: WorkerId,
    /// A worker that vanished without a word is followed then by another one of this process.
    until: Instant,
    connection: PgConnection,
}

impl PostgresStore {
    /// Takes the lock, or keeps it. Behind a pooler in transaction mode there is no session that could have one: then it is
    /// granted to all.
    pub(crate) async fn lock_janitor(&self, request: &LeadRequest) -> sqlx::Result<Leadership> {
        let options = match (self.sessions.detect(&self.pool).await, &self.direct) {
            (_, Some(direct)) => direct.clone(),
            (Pooling::Transaction, None) => return Ok(Leadership::Held),
            (Pooling::Session | Pooling::Detect, None) => self.pool.connect_options(),
        };
        let name = format!("{}:{}", self.channel(), request.key());
        let mut locks = self.janitor_locks.0.lock().await;
        let now = Instant::now();
        let left = |held: &Held| held.until.saturating_duration_since(now);
        if let Some(held) = locks.get(&name)
            && held.worker != request.worker
            && !left(held).is_zero()
        {
            let (worker, left) = (held.worker.as_uuid(), left(held));
            return Ok(Leadership::HeldBy { worker, left });
        }
        // Taken out, so that a call that is cut short leaves no half of it behind.
        let kept = match locks.remove(&name) {
            Some(held) => alive(held.connection).await,
            None => None,
        };
        let mut connection = if let Some(connection) = kept {
            connection
        } else {
            let mut connection = options.connect().await?;
            if !self.try_lock(&mut connection, &name).await? {
                drop(connection.close().await);
                let (worker, left) = (Uuid::nil(), request.lease);
                return Ok(Leadership::HeldBy { worker, left });
            }
            connection
        };
        limit_idling(&mut connection, request.lease).await?;
        let (worker, until) = (request.worker, now + request.lease);
        let held = Held {
            worker,
            until,
            connection,
        };
        locks.insert(name, held);
        Ok(Leadership::Held)
    }

    /// By the table itself: others of the same name, in other schemas, have janitors of their own.
    async fn try_lock(&self, connection: &mut PgConnection, name: &str) -> sqlx::Result<bool> {
        let table = self.map.table(Table::Outbox).map(|table| table.quoted('"'));
        sqlx::query_scalar(
            "select pg_try_advisory_lock(hashtextextended($1 || coalesce(to_regclass($2)::oid::text, ''), 1))",
        )
        .bind(name)
        .bind(table)
        .fetch_one(connection)
        .await
    }

    /// Gives back what a relay looked after.
    pub(crate) async fn unlock_janitor(&self, worker: WorkerId) -> sqlx::Result<()> {
        let mut locks = self.janitor_locks.0.lock().await;
        let its = locks.iter().filter(|(_, held)| held.worker == worker);
        let names: Vec<_> = its.map(|(name, _)| name.clone()).collect();
        for name in names {
            let Some(mut held) = locks.remove(&name) else { continue };
            // The server notices the end of a connection a little later; the next one need not wait for that.
            sqlx::query("select pg_advisory_unlock_all()")
                .execute(&mut held.connection)
                .await?;
            held.connection.close().await?;
        }
        Ok(())
    }
}

/// The connection, unless it is lost, and the lock with it.
async fn alive(mut connection: PgConnection) -> Option<PgConnection> {
    let answer = sqlx::raw_sql("select 1").execute(&mut connection).await;
    answer.is_ok().then_some(connection)
}

/// The server ends the connection of a relay that is frozen or unreachable, where it can do that (from PostgreSQL 14 on).
async fn limit_idling(connection: &mut PgConnection, lease: Duration) -> sqlx::Result<()> {
    let limit = "select set_config(name, $1::text, false) from pg_settings
         where name in ('idle_session_timeout', 'tcp_user_timeout')";
    let limit = sqlx::query(limit).bind(millis(lease).to_string());
    limit.execute(connection).await.map(drop)
}
