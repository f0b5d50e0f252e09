//! The connections on which an application may enqueue.

use posthaste_core::enqueue::Prepared;
use posthaste_core::{Enqueued, StoreError};
use posthaste_sql::enqueue::{AnswerRow, EnqueueSteps, Query, Value};
use sqlx::pool::PoolConnection;
use sqlx::sqlite::SqliteRow;
use sqlx::{AssertSqlSafe, Connection, Row, Sqlite, SqliteConnection, Transaction};

use crate::SqliteStore;
use crate::prepare::{Progress, SqliteEnqueue};

/// A connection that can write outbox rows: sqlx's `Transaction`, `SqliteConnection` and `PoolConnection`.
///
/// Sealed: its one method takes types of this crate. For other drivers see [`SqliteEnqueue`].
pub trait EnqueueExecutor: Send {
    /// Writes the rows and returns one outcome per row.
    #[doc(hidden)]
    fn insert(
        &mut self,
        store: InsertStatements,
        rows: NewRows<'_>,
    ) -> impl Future<Output = Result<Vec<Enqueued>, StoreError>> + Send;
}

/// The store whose rows are written.
#[doc(hidden)]
#[derive(Debug)]
pub struct InsertStatements(pub(crate) SqliteStore);

/// Rows of which nothing is written yet.
#[doc(hidden)]
#[derive(Debug)]
pub struct NewRows<'a> {
    pub(crate) steps: SqliteEnqueue,
    pub(crate) prepared: &'a Prepared,
    pub(crate) progress: Progress,
}

impl NewRows<'_> {
    async fn write(mut self, conn: &mut SqliteConnection, store: &SqliteStore) -> Result<Vec<Enqueued>, StoreError> {
        while let Some(query) = self.steps.query(&self.progress, self.prepared) {
            let rows = fetch(conn, query).await.map_err(|error| store.error(error))?;
            self.steps.answer(&mut self.progress, self.prepared, rows);
        }
        self.steps.finish(self.progress)
    }
}

async fn fetch(conn: &mut SqliteConnection, query: Query<'_, Value<'_>>) -> sqlx::Result<Vec<AnswerRow>> {
    // Safe because the text is a file of this crate, finished with quoted identifiers only.
    let mut bound = sqlx::query(AssertSqlSafe(query.sql));
    for argument in query.arguments {
        bound = match argument {
            Value::Text(text) => bound.bind(text),
            Value::Bytes(bytes) => bound.bind(bytes.into_owned()),
            Value::Integer(number) => bound.bind(number),
        };
    }
    let read = |row: &SqliteRow| {
        // A primary key of SQLite's may be missing.
        let id = row.try_get_unchecked::<Option<Vec<u8>>, _>("id")?.unwrap_or_default();
        Ok(AnswerRow {
            place: row.try_get("place")?,
            id: String::from_utf8_lossy(&id).into_owned(),
            is_new: row.try_get("is_new")?,
        })
    };
    bound.fetch_all(conn).await?.iter().map(read).collect()
}

impl EnqueueExecutor for SqliteConnection {
    async fn insert(&mut self, store: InsertStatements, rows: NewRows<'_>) -> Result<Vec<Enqueued>, StoreError> {
        insert(self, &store.0, rows).await
    }
}

/// Rows without dedupe keys are one statement. Keys and generated ids take more, and all must hold or none: a savepoint
/// inside the caller's transaction, or a transaction where the caller has none.
async fn insert(
    conn: &mut SqliteConnection,
    store: &SqliteStore,
    rows: NewRows<'_>,
) -> Result<Vec<Enqueued>, StoreError> {
    if rows.steps.is_one_statement(rows.prepared) {
        return rows.write(conn, store).await;
    }
    let refused = match conn.begin().await {
        Ok(mut tx) => {
            let outcomes = rows.write(&mut tx, store).await?;
            tx.commit().await.map_err(|error| store.error(error))?;
            return Ok(outcomes);
        }
        Err(error) => error,
    };
    if is_nested_begin(&refused) {
        // Begun with a `BEGIN` of the caller's own, of which sqlx does not know. Rows come before their keys, so what a
        // failure leaves half done can only be delivered twice, never lost.
        return rows.write(conn, store).await;
    }
    Err(store.error(refused))
}

fn is_nested_begin(error: &sqlx::Error) -> bool {
    error
        .as_database_error()
        .is_some_and(|error| error.message().contains("within a transaction"))
}

impl EnqueueExecutor for Transaction<'_, Sqlite> {
    async fn insert(&mut self, store: InsertStatements, rows: NewRows<'_>) -> Result<Vec<Enqueued>, StoreError> {
        (**self).insert(store, rows).await
    }
}

impl EnqueueExecutor for PoolConnection<Sqlite> {
    async fn insert(&mut self, store: InsertStatements, rows: NewRows<'_>) -> Result<Vec<Enqueued>, StoreError> {
        (**self).insert(store, rows).await
    }
}
