//! The connections on which an application may enqueue.

use posthaste_core::enqueue::Prepared;
use posthaste_core::store::StoreErrorKind;
use posthaste_core::{Enqueued, StoreError};
use posthaste_sql::enqueue::{AnswerRow, EnqueueSteps, Query, RefusableSteps, Value};
use sqlx::mysql::MySqlRow;
use sqlx::pool::PoolConnection;
use sqlx::{AssertSqlSafe, Executor, MySql, MySqlConnection, Row, Transaction};

use crate::BEGIN;
use crate::error::{number, store_error};
use crate::inbox_store::DUPLICATE;
use crate::prepare::{MySqlEnqueue, Progress};

/// A connection that can write outbox rows: sqlx's `Transaction`, `MySqlConnection` and `PoolConnection`.
///
/// Sealed: its one method takes types of this crate. For other drivers see [`MySqlEnqueue`].
pub trait EnqueueExecutor: Send {
    /// Writes the rows and returns one outcome per row.
    #[doc(hidden)]
    fn insert(&mut self, rows: NewRows<'_>) -> impl Future<Output = Result<Vec<Enqueued>, StoreError>> + Send;
}

/// Rows of which nothing is written yet.
#[doc(hidden)]
#[derive(Debug)]
pub struct NewRows<'a> {
    pub(crate) steps: MySqlEnqueue,
    pub(crate) prepared: &'a Prepared,
    pub(crate) progress: Progress,
}

impl NewRows<'_> {
    async fn write(mut self, conn: &mut MySqlConnection) -> Result<Vec<Enqueued>, StoreError> {
        let mut refused = None;
        while let Some(query) = self.steps.query(&self.progress, self.prepared) {
            match fetch(conn, query).await {
                Ok(rows) => self.steps.answer(&mut self.progress, self.prepared, rows),
                Err(error) if number(&error) == Some(DUPLICATE) => {
                    self.steps.refused(&mut self.progress, self.prepared);
                    refused = Some(error);
                }
                Err(error) => return Err(store_error(error)),
            }
        }
        let outcomes = self.steps.finish(self.progress);
        outcomes.map_err(|error| refused.map_or(error, refused_by_an_index))
    }
}

/// Of a row that is in the way and was not found by anything that the table map says may be there once.
fn refused_by_an_index(error: sqlx::Error) -> StoreError {
    StoreError {
        kind: StoreErrorKind::Other,
        message: format!("MySQL: {error}"),
        remedy: Some("look at the table's unique indexes: one forbids what the table map allows"),
        source: Some(Box::new(error)),
    }
}

async fn fetch(conn: &mut MySqlConnection, query: Query<'_, Value<'_>>) -> sqlx::Result<Vec<AnswerRow>> {
    // Safe because the text is a file of this crate, finished with quoted identifiers only.
    let mut bound = sqlx::query(AssertSqlSafe(query.sql));
    for argument in query.arguments {
        bound = match argument {
            Value::Text(text) => bound.bind(text),
            Value::Bytes(bytes) => bound.bind(bytes),
            Value::Integer(number) => bound.bind(number),
        };
    }
    if query.returns_rows {
        let read = |row: &MySqlRow| {
            Ok(AnswerRow {
                place: row.try_get("place")?,
                id: row.try_get("id")?,
                is_new: row.try_get("is_new")?,
            })
        };
        return bound.fetch_all(conn).await?.iter().map(read).collect();
    }
    // The driver knows already what the next statement would ask for.
    let given = bound.execute(conn).await?.last_insert_id();
    Ok(vec![AnswerRow {
        place: 1,
        id: given.to_string(),
        is_new: true,
    }])
}

/// Marks where the enqueue began, so that it can be undone alone.
const MARK: &str = "savepoint posthaste_enqueue";

/// Writes all or nothing inside a transaction.
async fn insert_in_transaction(conn: &mut MySqlConnection, rows: NewRows<'_>) -> Result<Vec<Enqueued>, StoreError> {
    if rows.progress.is_one_statement() {
        return rows.write(conn).await;
    }
    conn.execute(MARK).await.map_err(store_error)?;
    let written = rows.write(conn).await;
    if written.is_err() {
        // After a deadlock the server has undone everything, the mark with it.
        let _ = conn.execute("rollback to savepoint posthaste_enqueue").await;
    }
    written
}

/// The same on a connection of which it is not known whether it is in a transaction. It must not be asked to begin one if
/// it is: that would commit what the caller has done so far.
async fn insert_anywhere(conn: &mut MySqlConnection, rows: NewRows<'_>) -> Result<Vec<Enqueued>, StoreError> {
    if rows.progress.is_one_statement() {
        return rows.write(conn).await;
    }
    conn.execute(MARK).await.map_err(store_error)?;
    // Outside a transaction a mark is forgotten at once.
    if conn.execute("release savepoint posthaste_enqueue").await.is_ok() {
        return insert_in_transaction(conn, rows).await;
    }
    let mut tx = sqlx::Connection::begin_with(conn, BEGIN).await.map_err(store_error)?;
    let outcomes = rows.write(&mut tx).await?;
    tx.commit().await.map_err(store_error)?;
    Ok(outcomes)
}

impl EnqueueExecutor for MySqlConnection {
    async fn insert(&mut self, rows: NewRows<'_>) -> Result<Vec<Enqueued>, StoreError> {
        insert_anywhere(self, rows).await
    }
}

impl EnqueueExecutor for Transaction<'_, MySql> {
    async fn insert(&mut self, rows: NewRows<'_>) -> Result<Vec<Enqueued>, StoreError> {
        insert_in_transaction(self, rows).await
    }
}

impl EnqueueExecutor for PoolConnection<MySql> {
    async fn insert(&mut self, rows: NewRows<'_>) -> Result<Vec<Enqueued>, StoreError> {
        (**self).insert(rows).await
    }
}
