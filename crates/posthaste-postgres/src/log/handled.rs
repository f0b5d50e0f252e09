//! The consumer's side over a table of effects: `(aggregate type, aggregate id, action)`.

use std::time::Duration;

use posthaste_core::store::StoreErrorKind;
use posthaste_core::{Inbox, InboxStore, Mark, StoreError};
use posthaste_sql::TableMap;
use posthaste_sql::template::render;
use sqlx::{AssertSqlSafe, PgConnection, PgPool, Postgres, Transaction};

use crate::dialect::PostgresDialect;
use crate::error::store_error;
use crate::handling::{begin, commit, prove_mark, set_mark};
use crate::rows::millis;

/// Remembers effects in a table that a map calls `handled`. Keys are written `{aggregate type}/{aggregate id}/{action}`;
/// the aggregate id may have slashes of its own. The table has no consumers, so neither has this: who shares the table
/// shares what was handled. Cheap to clone.
#[derive(Clone, Debug)]
pub struct PostgresHandled {
    pool: PgPool,
    record: String,
    purge: String,
}

impl PostgresHandled {
    /// The table of effects of a map.
    pub fn new(pool: PgPool, map: &TableMap) -> Result<Self, StoreError> {
        Ok(Self {
            pool,
            record: render(
                include_str!("../../queries/log/record_handled.sql"),
                map,
                &PostgresDialect,
            )?,
            purge: render(
                include_str!("../../queries/log/purge_handled.sql"),
                map,
                &PostgresDialect,
            )?,
        })
    }
}

impl Inbox for PostgresHandled {
    type Connection = PgConnection;

    async fn record(&self, tx: &mut PgConnection, key: &str) -> Result<bool, StoreError> {
        let parts = key
            .split_once('/')
            .and_then(|(kind, rest)| Some((kind, rest.rsplit_once('/')?)));
        let Some((aggregate_type, (aggregate_id, action))) = parts else {
            return Err(StoreError {
                kind: StoreErrorKind::Other,
                message: format!("`{key}` names no effect on an aggregate"),
                remedy: Some("use Once::per_aggregate, or a key of the form {aggregate type}/{aggregate id}/{action}"),
                source: None,
            });
        };
        let done = sqlx::query(AssertSqlSafe(self.record.clone()))
            .persistent(false)
            .bind(with_slashes(aggregate_type))
            .bind(aggregate_id)
            .bind(with_slashes(action))
            .execute(tx)
            .await
            .map_err(store_error)?;
        Ok(done.rows_affected() == 1)
    }

    async fn mark(&self, tx: &mut PgConnection, mark: Mark) -> Result<(), StoreError> {
        set_mark(tx, mark).await
    }

    async fn prove(&self, tx: &mut PgConnection, mark: Mark) -> Result<(), StoreError> {
        prove_mark(tx, mark).await
    }
}

/// The key keeps slashes apart from its own; the table need not.
fn with_slashes(part: &str) -> String {
    part.replace("%2F", "/").replace("%25", "%")
}

impl InboxStore for PostgresHandled {
    type Transaction = Transaction<'static, Postgres>;

    async fn begin(&self) -> Result<Self::Transaction, StoreError> {
        begin(&self.pool).await
    }

    async fn commit(&self, tx: Self::Transaction) -> Result<(), StoreError> {
        commit(tx).await
    }

    async fn purge(&self, keep: Duration, limit: u32) -> Result<u64, StoreError> {
        let mut tx = self.begin().await?;
        let done = sqlx::query(AssertSqlSafe(self.purge.clone()))
            .persistent(false)
            .bind(millis(keep))
            .bind(i64::from(limit))
            .execute(&mut *tx)
            .await
            .map_err(store_error)?;
        self.commit(tx).await?;
        Ok(done.rows_affected())
    }
}
