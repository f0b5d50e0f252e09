//! The connections on which an application may enqueue.

use posthaste_core::enqueue::Prepared;
use posthaste_core::{Enqueued, StoreError};
use posthaste_sql::enqueue::{AnswerRow, Argument, EnqueueSteps, Query};
use sqlx::pool::PoolConnection;
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Connection, PgConnection, Postgres, Row, Transaction};

use crate::BEGIN;
use crate::error::store_error;
use crate::prepare::{PostgresEnqueue, Progress};

/// Marks a place in a transaction. Outside of one the server refuses that, and nothing else happens.
const MARK: &str = "savepoint posthaste_enqueue";
const FORGET_MARK: &str = "release savepoint posthaste_enqueue";

/// The error of a server that is asked for a mark outside a transaction.
const NO_TRANSACTION: &str = "25P01";

/// A connection on which outbox rows can be written: sqlx's `Transaction`, `PgConnection` and `PoolConnection`, and with the
/// feature `tokio-postgres` that crate's `Transaction` and `Client`.
///
/// Implement it for the connection of an ORM or of another driver, and outboxes write on that: see
/// [`PostgresEnqueue`](crate::PostgresEnqueue). It has to be in a transaction then: more than 10,000 messages of one call, and
/// several for a table that gives the ids, take more than one statement. The connections named above begin one where there is none.
pub trait EnqueueExecutor: Send {
    /// Runs a statement and returns its rows.
    ///
    /// # Errors
    /// Of any kind; the call of `enqueue` ends with it.
    fn fetch(&mut self, query: Query<'_>) -> impl Future<Output = Result<Vec<AnswerRow>, StoreError>> + Send;

    /// Writes the rows of one call, all or none, and returns one outcome per row.
    #[doc(hidden)]
    fn insert(&mut self, rows: NewRows<'_>) -> impl Future<Output = Result<Vec<Enqueued>, StoreError>> + Send {
        rows.write_on(self)
    }
}

/// Rows of which nothing is written yet.
#[doc(hidden)]
#[derive(Debug)]
pub struct NewRows<'a> {
    pub(crate) steps: &'a PostgresEnqueue,
    pub(crate) prepared: &'a Prepared,
    pub(crate) progress: Progress,
    /// Whether the server keeps the statements.
    pub(crate) is_kept: bool,
}

impl NewRows<'_> {
    /// Whether they are written by one statement, which needs no transaction to be all or none.
    fn is_one_insert(&self) -> bool {
        self.steps.is_one_insert(&self.progress, self.prepared)
    }

    async fn write_on<C: EnqueueExecutor + ?Sized>(mut self, conn: &mut C) -> Result<Vec<Enqueued>, StoreError> {
        while let Some(mut query) = self.steps.query(&self.progress, self.prepared) {
            query.is_kept = self.is_kept;
            let rows = conn.fetch(query).await?;
            self.steps.answer(&mut self.progress, self.prepared, rows);
        }
        self.steps.finish(self.progress)
    }
}

impl EnqueueExecutor for PgConnection {
    async fn fetch(&mut self, query: Query<'_>) -> Result<Vec<AnswerRow>, StoreError> {
        // Safe because the text is a file of this crate, finished with quoted identifiers only.
        let mut bound = sqlx::query(AssertSqlSafe(query.sql)).persistent(query.is_kept);
        for argument in query.arguments {
            bound = match argument {
                Argument::Texts(texts) => bound.bind(texts),
                Argument::Bytes(bytes) => bound.bind(bytes),
                Argument::Uuids(ids) => bound.bind(ids),
                Argument::Times(times) => bound.bind(times),
                Argument::Text(text) => bound.bind(text),
                Argument::Blob(bytes) => bound.bind(bytes),
                Argument::Time(time) => bound.bind(time),
                Argument::Integer(number) => bound.bind(number),
            };
        }
        let read = |row: &PgRow| {
            Ok(AnswerRow {
                place: row.try_get("place")?,
                id: row.try_get("id")?,
                is_new: row.try_get("is_new")?,
            })
        };
        let rows = bound.fetch_all(self).await.map_err(store_error)?;
        rows.iter().map(read).collect::<sqlx::Result<_>>().map_err(store_error)
    }

    async fn insert(&mut self, rows: NewRows<'_>) -> Result<Vec<Enqueued>, StoreError> {
        if rows.is_one_insert() || is_in_transaction(self).await.map_err(store_error)? {
            return rows.write_on(self).await;
        }
        let mut tx = self.begin_with(BEGIN).await.map_err(store_error)?;
        let outcomes = rows.write_on(&mut *tx).await?;
        tx.commit().await.map_err(store_error)?;
        Ok(outcomes)
    }
}

/// Also in one that was begun with a `BEGIN` of the caller's own, of which sqlx does not know: another one in it would be a mere
/// warning, and its end the end of the caller's.
async fn is_in_transaction(conn: &mut PgConnection) -> sqlx::Result<bool> {
    use sqlx::Executor as _;

    if conn.is_in_transaction() {
        return Ok(true);
    }
    match conn.execute(MARK).await {
        Ok(_) => conn.execute(FORGET_MARK).await.map(|_| true),
        Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some(NO_TRANSACTION) => Ok(false),
        Err(error) => Err(error),
    }
}

impl EnqueueExecutor for Transaction<'_, Postgres> {
    async fn fetch(&mut self, query: Query<'_>) -> Result<Vec<AnswerRow>, StoreError> {
        (**self).fetch(query).await
    }
}

impl EnqueueExecutor for PoolConnection<Postgres> {
    async fn fetch(&mut self, query: Query<'_>) -> Result<Vec<AnswerRow>, StoreError> {
        (**self).fetch(query).await
    }

    async fn insert(&mut self, rows: NewRows<'_>) -> Result<Vec<Enqueued>, StoreError> {
        (**self).insert(rows).await
    }
}

#[cfg(feature = "tokio-postgres")]
mod with_tokio_postgres {
    use posthaste_core::store::StoreErrorKind;
    use tokio_postgres::types::{ToSql, Type};
    use tokio_postgres::{Client, GenericClient, Row, Transaction};

    use super::{
        AnswerRow, Argument, EnqueueExecutor, Enqueued, FORGET_MARK, MARK, NO_TRANSACTION, NewRows, Query, StoreError,
    };

    /// With their types given, a statement goes over in one step and without a name, so it works through any pooler.
    fn typed<'a>(argument: &'a Argument<'_>) -> (&'a (dyn ToSql + Sync), Type) {
        match argument {
            Argument::Texts(texts) => (texts, Type::TEXT_ARRAY),
            Argument::Bytes(bytes) => (bytes, Type::BYTEA_ARRAY),
            Argument::Uuids(ids) => (ids, Type::UUID_ARRAY),
            Argument::Times(times) => (times, Type::TIMESTAMPTZ_ARRAY),
            Argument::Text(text) => (text, Type::TEXT),
            Argument::Blob(bytes) => (bytes, Type::BYTEA),
            Argument::Time(time) => (time, Type::TIMESTAMPTZ),
            Argument::Integer(number) => (number, Type::INT8),
        }
    }

    async fn fetch(client: &impl GenericClient, query: Query<'_>) -> Result<Vec<AnswerRow>, StoreError> {
        let arguments: Vec<_> = query.arguments.iter().map(typed).collect();
        let rows = client.query_typed(&query.sql, &arguments).await.map_err(store_error)?;
        let read = |row: &Row| {
            Ok(AnswerRow {
                place: row.try_get("place")?,
                id: row.try_get("id")?,
                is_new: row.try_get("is_new")?,
            })
        };
        rows.iter()
            .map(read)
            .collect::<Result<_, tokio_postgres::Error>>()
            .map_err(store_error)
    }

    fn store_error(error: tokio_postgres::Error) -> StoreError {
        let code = error.code().map_or("08000", tokio_postgres::error::SqlState::code);
        let (kind, remedy) = crate::error::by_sqlstate(code);
        let kind = if error.is_closed() {
            StoreErrorKind::Unavailable
        } else {
            kind
        };
        let detail = error
            .as_db_error()
            .map_or_else(|| error.to_string(), ToString::to_string);
        StoreError {
            kind,
            message: format!("PostgreSQL: {detail}"),
            remedy,
            source: Some(Box::new(error)),
        }
    }

    impl EnqueueExecutor for Transaction<'_> {
        async fn fetch(&mut self, query: Query<'_>) -> Result<Vec<AnswerRow>, StoreError> {
            fetch(self, query).await
        }
    }

    impl EnqueueExecutor for Client {
        async fn fetch(&mut self, query: Query<'_>) -> Result<Vec<AnswerRow>, StoreError> {
            fetch(self, query).await
        }

        async fn insert(&mut self, rows: NewRows<'_>) -> Result<Vec<Enqueued>, StoreError> {
            if rows.is_one_insert() || is_in_transaction(self).await.map_err(store_error)? {
                return rows.write_on(self).await;
            }
            let mut tx = self.transaction().await.map_err(store_error)?;
            let outcomes = rows.write_on(&mut tx).await?;
            tx.commit().await.map_err(store_error)?;
            Ok(outcomes)
        }
    }

    async fn is_in_transaction(client: &Client) -> Result<bool, tokio_postgres::Error> {
        match client.batch_execute(MARK).await {
            Ok(()) => client.batch_execute(FORGET_MARK).await.map(|()| true),
            Err(error) if error.code().is_some_and(|code| code.code() == NO_TRANSACTION) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
