//! The connections on which an application may enqueue.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use posthaste_core::enqueue::Prepared;
use posthaste_core::{Enqueued, MessageId, StoreError};
use sqlx::pool::PoolConnection;
use sqlx::{AssertSqlSafe, PgConnection, Postgres, Row, Transaction};

use crate::error::store_error;
use crate::rows::millis;
use crate::statements::Statement;

/// A connection that can write outbox rows: sqlx's `Transaction`, `PgConnection` and `PoolConnection`, and with the
/// feature `tokio-postgres` that crate's `Transaction` and `Client`.
///
/// Sealed: its one method takes types of this crate.
pub trait Runner: Send {
    /// Runs the insert and returns one outcome per row.
    #[doc(hidden)]
    fn insert(
        &mut self,
        statement: InsertStatement,
        rows: NewRows<'_>,
    ) -> impl Future<Output = Result<Vec<Enqueued>, StoreError>> + Send;

    /// Runs a statement that takes texts, column by column, and returns the place and id of rows.
    #[doc(hidden)]
    fn fetch(
        &mut self,
        statement: InsertStatement,
        texts: Vec<Texts>,
    ) -> impl Future<Output = Result<Vec<(i64, String)>, StoreError>> + Send;
}

/// A column of texts.
#[doc(hidden)]
pub type Texts = Vec<Option<String>>;

/// The finished insert.
#[doc(hidden)]
#[derive(Debug)]
pub struct InsertStatement {
    text: Arc<str>,
    /// Whether sessions keep it once it was prepared.
    is_kept: bool,
}

impl InsertStatement {
    pub(crate) fn new(text: &Arc<str>, is_kept: bool) -> Self {
        Self {
            text: Arc::clone(text),
            is_kept,
        }
    }

    /// Safe because the text is a file of this crate, finished with quoted identifiers only.
    fn sql(&self) -> AssertSqlSafe<Arc<str>> {
        AssertSqlSafe(Arc::clone(&self.text))
    }
}

impl From<&Statement> for InsertStatement {
    fn from(statement: &Statement) -> Self {
        Self::new(statement.text(), statement.is_kept())
    }
}

/// New rows, column by column, as `unnest` takes them.
#[doc(hidden)]
#[derive(Debug)]
pub struct NewRows<'a> {
    ids: Vec<String>,
    /// namespace, topic, `ordering_key`, tenant, `dedupe_key`, `event_type`, source, `aggregate_type`, `aggregate_id`,
    /// `content_type`: parameters 2 to 11.
    texts: [Vec<Option<&'a str>>; 10],
    payloads: Vec<&'a [u8]>,
    headers: Vec<String>,
    hashes: Vec<&'a [u8]>,
    not_before: Vec<Option<DateTime<Utc>>>,
    dedupe_window_ms: i64,
}

impl<'a> NewRows<'a> {
    pub(crate) fn new(prepared: &'a Prepared, dedupe_window: Duration) -> Self {
        let rows = &prepared.rows;
        let text =
            |column: fn(&'a posthaste_core::enqueue::NewRow) -> Option<&'a str>| rows.iter().map(column).collect();
        Self {
            ids: rows.iter().map(|row| row.message.id.to_string()).collect(),
            texts: [
                text(|row| Some(&row.namespace)),
                text(|row| Some(&row.message.topic)),
                text(|row| row.message.ordering_key.as_deref()),
                text(|row| row.message.tenant.as_deref()),
                text(|row| row.message.dedupe_key.as_deref()),
                text(|row| row.message.event_type.as_deref()),
                text(|row| row.message.source.as_deref()),
                text(|row| row.message.aggregate_type.as_deref()),
                text(|row| row.message.aggregate_id.as_deref()),
                text(|row| Some(&row.message.content_type)),
            ],
            payloads: rows.iter().map(|row| row.message.payload.as_ref()).collect(),
            headers: rows
                .iter()
                .map(|row| serde_json::json!(row.message.headers).to_string())
                .collect(),
            hashes: rows.iter().map(|row| row.hash.as_bytes().as_slice()).collect(),
            not_before: rows.iter().map(|row| row.message.not_before).collect(),
            dedupe_window_ms: millis(dedupe_window),
        }
    }
}

fn outcome(id: &str, is_new: bool) -> Enqueued {
    // The server made this text of a UUID.
    let id = MessageId::guess(id);
    if is_new {
        Enqueued::Inserted(id)
    } else {
        Enqueued::Duplicate(id)
    }
}

impl Runner for PgConnection {
    async fn insert(&mut self, statement: InsertStatement, rows: NewRows<'_>) -> Result<Vec<Enqueued>, StoreError> {
        let mut query = sqlx::query(statement.sql())
            .persistent(statement.is_kept)
            .bind(rows.ids);
        for column in rows.texts {
            query = query.bind(column);
        }
        let found = query
            .bind(rows.payloads)
            .bind(rows.headers)
            .bind(rows.hashes)
            .bind(rows.not_before)
            .bind(rows.dedupe_window_ms)
            .fetch_all(self)
            .await
            .map_err(store_error)?;
        let read = |row: &sqlx::postgres::PgRow| Ok(outcome(row.try_get("id")?, row.try_get("is_new")?));
        found.iter().map(read).collect::<sqlx::Result<_>>().map_err(store_error)
    }

    async fn fetch(&mut self, statement: InsertStatement, texts: Vec<Texts>) -> Result<Vec<(i64, String)>, StoreError> {
        let mut query = sqlx::query_as(statement.sql()).persistent(statement.is_kept);
        for column in texts {
            query = query.bind(column);
        }
        query.fetch_all(self).await.map_err(store_error)
    }
}

impl Runner for Transaction<'_, Postgres> {
    async fn insert(&mut self, statement: InsertStatement, rows: NewRows<'_>) -> Result<Vec<Enqueued>, StoreError> {
        (**self).insert(statement, rows).await
    }

    async fn fetch(&mut self, statement: InsertStatement, texts: Vec<Texts>) -> Result<Vec<(i64, String)>, StoreError> {
        (**self).fetch(statement, texts).await
    }
}

impl Runner for PoolConnection<Postgres> {
    async fn insert(&mut self, statement: InsertStatement, rows: NewRows<'_>) -> Result<Vec<Enqueued>, StoreError> {
        (**self).insert(statement, rows).await
    }

    async fn fetch(&mut self, statement: InsertStatement, texts: Vec<Texts>) -> Result<Vec<(i64, String)>, StoreError> {
        (**self).fetch(statement, texts).await
    }
}

#[cfg(feature = "tokio-postgres")]
mod tokio_postgres_runner {
    use posthaste_core::store::StoreErrorKind;
    use tokio_postgres::types::{ToSql, Type};
    use tokio_postgres::{Client, GenericClient, Transaction};

    use super::{Enqueued, InsertStatement, NewRows, Runner, StoreError, Texts, outcome};

    /// With their types given, a statement goes over in one step and without a name, so it works through any pooler.
    type Argument<'a> = (&'a (dyn ToSql + Sync), Type);

    async fn insert(
        client: &impl GenericClient,
        statement: InsertStatement,
        rows: NewRows<'_>,
    ) -> Result<Vec<Enqueued>, StoreError> {
        let mut arguments: Vec<Argument<'_>> = vec![(&rows.ids, Type::TEXT_ARRAY)];
        arguments.extend(rows.texts.iter().map(|column| (column as _, Type::TEXT_ARRAY)));
        arguments.extend([
            (&rows.payloads as _, Type::BYTEA_ARRAY),
            (&rows.headers as _, Type::TEXT_ARRAY),
            (&rows.hashes as _, Type::BYTEA_ARRAY),
            (&rows.not_before as _, Type::TIMESTAMPTZ_ARRAY),
            (&rows.dedupe_window_ms as _, Type::INT8),
        ]);
        let found = client
            .query_typed(&statement.text, &arguments)
            .await
            .map_err(store_error)?;
        let read = |row: &tokio_postgres::Row| Ok(outcome(row.try_get("id")?, row.try_get("is_new")?));
        found
            .iter()
            .map(read)
            .collect::<Result<_, tokio_postgres::Error>>()
            .map_err(store_error)
    }

    async fn fetch(
        client: &impl GenericClient,
        statement: InsertStatement,
        texts: Vec<Texts>,
    ) -> Result<Vec<(i64, String)>, StoreError> {
        let texts: Vec<Argument<'_>> = texts.iter().map(|column| (column as _, Type::TEXT_ARRAY)).collect();
        let found = client.query_typed(&statement.text, &texts).await.map_err(store_error)?;
        let read = |row: &tokio_postgres::Row| Ok((row.try_get("place")?, row.try_get("id")?));
        found
            .iter()
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

    impl Runner for Transaction<'_> {
        async fn insert(&mut self, statement: InsertStatement, rows: NewRows<'_>) -> Result<Vec<Enqueued>, StoreError> {
            insert(self, statement, rows).await
        }

        async fn fetch(
            &mut self,
            statement: InsertStatement,
            texts: Vec<Texts>,
        ) -> Result<Vec<(i64, String)>, StoreError> {
            fetch(self, statement, texts).await
        }
    }

    impl Runner for Client {
        async fn insert(&mut self, statement: InsertStatement, rows: NewRows<'_>) -> Result<Vec<Enqueued>, StoreError> {
            insert(self, statement, rows).await
        }

        async fn fetch(
            &mut self,
            statement: InsertStatement,
            texts: Vec<Texts>,
        ) -> Result<Vec<(i64, String)>, StoreError> {
            fetch(self, statement, texts).await
        }
    }
}
