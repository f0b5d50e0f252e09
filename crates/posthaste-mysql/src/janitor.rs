//! Who looks after an existing table, which has no place to say so: a named lock of a connection of its own, which ends
//! with its holder.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use posthaste_core::integrity::ContentHash;
use posthaste_core::store::{LeadRequest, Leadership, WorkerId};
use posthaste_sql::table::Table;
use sqlx::{ConnectOptions, Connection, MySqlConnection};
use tokio::sync::Mutex;
use uuid::Uuid;

use crate::MySqlStore;

/// What relays of this process look after, by the name of the lock.
#[derive(Debug, Default)]
pub(crate) struct JanitorLocks(Mutex<HashMap<String, Held>>);

#[derive(Debug)]
struct Held {
    worker: WorkerId,
    /// A worker that vanished without a word is followed then by another one of this process.
    until: Instant,
    connection: MySqlConnection,
}

impl MySqlStore {
    /// Takes the lock, or keeps it.
    pub(crate) async fn lock_janitor(&self, request: &LeadRequest) -> sqlx::Result<Leadership> {
        let name = self.janitor_lock(request);
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
            let mut connection = self.pool.connect_options().connect().await?;
            if !try_lock(&mut connection, &name).await? {
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

    /// The name of the lock. Locks are the server's, so the database is part of it; and such names are short.
    fn janitor_lock(&self, request: &LeadRequest) -> String {
        let database = self
            .pool
            .connect_options()
            .get_database()
            .unwrap_or_default()
            .to_owned();
        let table = self
            .map
            .table(Table::Outbox)
            .map(ToString::to_string)
            .unwrap_or_default();
        let key = request.key();
        let parts = [database.as_bytes(), b"/", table.as_bytes(), b"/", key.as_bytes()];
        let hash = ContentHash::of(&parts).to_string();
        format!("posthaste:janitor:{}", hash.chars().take(40).collect::<String>())
    }

    /// Gives back what a relay looked after.
    pub(crate) async fn unlock_janitor(&self, worker: WorkerId) -> sqlx::Result<()> {
        let mut locks = self.janitor_locks.0.lock().await;
        let its = locks.iter().filter(|(_, held)| held.worker == worker);
        let names: Vec<_> = its.map(|(name, _)| name.clone()).collect();
        for name in names {
            let Some(mut held) = locks.remove(&name) else { continue };
            // The server notices the end of a connection a little later; the next one need not wait for that.
            sqlx::query("do release_lock(?)")
                .bind(&name)
                .execute(&mut held.connection)
                .await?;
            held.connection.close().await?;
        }
        Ok(())
    }
}

/// The connection, unless it is lost, and the lock with it.
async fn alive(mut connection: MySqlConnection) -> Option<MySqlConnection> {
    let answer = sqlx::raw_sql("select 1").execute(&mut connection).await;
    answer.is_ok().then_some(connection)
}

async fn try_lock(connection: &mut MySqlConnection, name: &str) -> sqlx::Result<bool> {
    let locked: Option<i64> = sqlx::query_scalar("select get_lock(?, 0)")
        .bind(name)
        .fetch_one(connection)
        .await?;
    Ok(locked == Some(1))
}

/// The server ends the connection of a relay that is frozen or unreachable.
async fn limit_idling(connection: &mut MySqlConnection, lease: Duration) -> sqlx::Result<()> {
    let limit = sqlx::query("set session wait_timeout = ?").bind(lease.as_secs().max(1));
    limit.execute(connection).await.map(drop)
}
