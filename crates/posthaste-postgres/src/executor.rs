//! The connections on which an application may enqueue.

use posthaste_core::StoreError;
use posthaste_sql::enqueue::{AnswerRow, Argument, Query};
use sqlx::pool::PoolConnection;
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, PgConnection, Postgres, Row, Transaction};

use crate::error::store_error;

/// A connection on which outbox rows can be written: sqlx's `Transaction`, `PgConnection` and `PoolConnection`, and with the
/// feature `tokio-postgres` that crate's `Transaction` and `Client`.
///
/// Implement it for the connection of an ORM or of another driver, and outboxes write on that: see
/// [`PostgresEnqueue`](crate::PostgresEnqueue).
pub trait EnqueueExecutor: Send {
    /// Runs a statement and returns its rows.
    ///
    /// # Errors
    /// Of any kind; the call of `enqueue` ends with it.
    fn fetch(&mut self, query: Query<'_>) -> impl Future<Output = Result<Vec<AnswerRow>, StoreError>> + Send;
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
}

#[cfg(feature = "tokio-postgres")]
mod with_tokio_postgres {
    use posthaste_core::store::StoreErrorKind;
    use tokio_postgres::types::{ToSql, Type};
    use tokio_postgres::{Client, GenericClient, Row, Transaction};

    use super::{AnswerRow, Argument, EnqueueExecutor, Query, StoreError};

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
    }
}
