//! The connections on which an application may enqueue.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use posthaste_core::enqueue::Prepared;
use posthaste_core::{Enqueued, MessageId, StoreError};
use serde::Serialize;
use sqlx::pool::PoolConnection;
use sqlx::types::Json;
use sqlx::{Connection, Row, Sqlite, SqliteConnection, Transaction};
use uuid::fmt::Hyphenated;

use crate::error::store_error;
use crate::rows::{epoch_millis, id, millis};
use crate::statements::Statements;

/// A connection that can write outbox rows: sqlx's `Transaction`, `SqliteConnection` and `PoolConnection`.
///
/// Sealed: its one method takes types of this crate.
pub trait Runner: Send {
    /// Writes the rows and returns one outcome per row.
    #[doc(hidden)]
    fn insert(
        &mut self,
        statements: InsertStatements,
        rows: NewRows<'_>,
    ) -> impl Future<Output = Result<Vec<Enqueued>, StoreError>> + Send;
}

/// The finished statements.
#[doc(hidden)]
#[derive(Debug)]
pub struct InsertStatements(Arc<Statements>);

impl From<Arc<Statements>> for InsertStatements {
    fn from(statements: Arc<Statements>) -> Self {
        Self(statements)
    }
}

/// New rows as JSON for `json_each`, with the payloads beside them as they are.
#[doc(hidden)]
#[derive(Debug)]
pub struct NewRows<'a> {
    rows: Vec<NewRow<'a>>,
    payloads: Vec<u8>,
    dedupe_window_ms: i64,
}

#[derive(Debug, Serialize)]
struct NewRow<'a> {
    id: MessageId,
    namespace: &'a str,
    topic: &'a str,
    ordering_key: Option<&'a str>,
    tenant: Option<&'a str>,
    dedupe_key: Option<&'a str>,
    event_type: Option<&'a str>,
    source: Option<&'a str>,
    aggregate_type: Option<&'a str>,
    aggregate_id: Option<&'a str>,
    content_type: &'a str,
    headers: String,
    hash: String,
    not_before: Option<i64>,
    /// Where its payload begins among the payloads; SQL counts from 1.
    start: usize,
    bytes: usize,
}

impl<'a> NewRows<'a> {
    pub(crate) fn new(prepared: &'a Prepared, dedupe_window: Duration) -> Self {
        let mut payloads = Vec::with_capacity(prepared.rows.iter().map(|row| row.message.payload.len()).sum());
        let rows = prepared
            .rows
            .iter()
            .map(|row| {
                let message = &row.message;
                let start = payloads.len() + 1;
                payloads.extend_from_slice(&message.payload);
                NewRow {
                    id: message.id,
                    namespace: &row.namespace,
                    topic: &message.topic,
                    ordering_key: message.ordering_key.as_deref(),
                    tenant: message.tenant.as_deref(),
                    dedupe_key: message.dedupe_key.as_deref(),
                    event_type: message.event_type.as_deref(),
                    source: message.source.as_deref(),
                    aggregate_type: message.aggregate_type.as_deref(),
                    aggregate_id: message.aggregate_id.as_deref(),
                    content_type: &message.content_type,
                    headers: serde_json::json!(message.headers).to_string(),
                    hash: row.hash.to_string(),
                    not_before: message.not_before.map(epoch_millis),
                    start,
                    bytes: message.payload.len(),
                }
            })
            .collect();
        Self {
            rows,
            payloads,
            dedupe_window_ms: millis(dedupe_window),
        }
    }

    fn has_keys(&self) -> bool {
        self.rows.iter().any(|row| row.dedupe_key.is_some())
    }

    async fn write(self, conn: &mut SqliteConnection, statements: &Statements) -> sqlx::Result<Vec<Enqueued>> {
        let keyed = self.has_keys();
        let ids: Vec<_> = self.rows.iter().map(|row| row.id).collect();
        let rows = Json(self.rows);
        let found = sqlx::query(statements.enqueue.sql())
            .bind(&rows)
            .bind(self.payloads)
            .fetch_all(&mut *conn)
            .await?;
        let mut written: HashSet<_> = found.iter().map(id).collect::<sqlx::Result<_>>()?;
        if keyed {
            sqlx::query(statements.hold_keys.sql())
                .bind(&rows)
                .bind(Json(&written))
                .bind(self.dedupe_window_ms)
                .execute(&mut *conn)
                .await?;
        }
        let mut holders = HashMap::new();
        if keyed && written.len() < ids.len() {
            let found = sqlx::query(statements.find_holders.sql())
                .bind(&rows)
                .fetch_all(conn)
                .await?;
            for row in &found {
                holders.insert(id(row)?, row.try_get::<Hyphenated, _>("holder")?.into_uuid().into());
            }
        }
        Ok(ids
            .into_iter()
            .map(|id| {
                // Removed, because an id that is given twice is written once.
                if written.remove(&id) {
                    Enqueued::Now(id)
                } else {
                    Enqueued::Before(holders.get(&id).copied().unwrap_or(id))
                }
            })
            .collect())
    }
}

impl Runner for SqliteConnection {
    async fn insert(&mut self, statements: InsertStatements, rows: NewRows<'_>) -> Result<Vec<Enqueued>, StoreError> {
        insert(self, &statements.0, rows).await.map_err(store_error)
    }
}

/// Rows without dedupe keys are one statement. Keys take a second one, and both must hold or neither: a savepoint inside
/// the caller's transaction, or a transaction where the caller has none.
async fn insert(
    conn: &mut SqliteConnection,
    statements: &Statements,
    rows: NewRows<'_>,
) -> sqlx::Result<Vec<Enqueued>> {
    if !rows.has_keys() {
        return rows.write(conn, statements).await;
    }
    let refused = match conn.begin().await {
        Ok(mut tx) => {
            let outcomes = rows.write(&mut tx, statements).await?;
            tx.commit().await?;
            return Ok(outcomes);
        }
        Err(error) => error,
    };
    if is_nested_begin(&refused) {
        // Begun with a `BEGIN` of the caller's own, of which sqlx does not know. Rows come before their keys, so what a
        // failure leaves half done can only be delivered twice, never lost.
        return rows.write(conn, statements).await;
    }
    Err(refused)
}

fn is_nested_begin(error: &sqlx::Error) -> bool {
    error
        .as_database_error()
        .is_some_and(|error| error.message().contains("within a transaction"))
}

impl Runner for Transaction<'_, Sqlite> {
    async fn insert(&mut self, statements: InsertStatements, rows: NewRows<'_>) -> Result<Vec<Enqueued>, StoreError> {
        (**self).insert(statements, rows).await
    }
}

impl Runner for PoolConnection<Sqlite> {
    async fn insert(&mut self, statements: InsertStatements, rows: NewRows<'_>) -> Result<Vec<Enqueued>, StoreError> {
        (**self).insert(statements, rows).await
    }
}
