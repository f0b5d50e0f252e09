//! The consumer's side: handling each delivery once.

use std::time::Duration;

use posthaste_core::{Inbox, InboxStore, StoreError};
use sqlx::{Sqlite, SqliteConnection, Transaction};

use crate::error::store_error;
use crate::rows::millis;
use crate::statements::Handled;
use crate::{BEGIN, SqliteStore};

/// What one consumer has handled. Cheap to clone.
///
/// Begin the handler's transactions with `BEGIN IMMEDIATE` (`pool.begin_with("BEGIN IMMEDIATE")`): SQLite does not let a
/// transaction that has read wait for the write lock, but fails it at once if somebody else has written since.
#[derive(Clone, Debug)]
pub struct SqliteInbox {
    store: SqliteStore,
    consumer: String,
}

impl SqliteInbox {
    pub(crate) fn new(store: SqliteStore, consumer: String) -> Self {
        Self { store, consumer }
    }
}

impl Inbox for SqliteInbox {
    type Connection = SqliteConnection;

    async fn record(&self, tx: &mut SqliteConnection, key: &str) -> Result<bool, StoreError> {
        let done = sqlx::query(self.store.handled()?.record_inbox.sql())
            .bind(self.consumer.clone())
            .bind(key.to_owned())
            .execute(tx)
            .await
            .map_err(store_error)?;
        Ok(done.rows_affected() == 1)
    }
}

impl InboxStore for SqliteInbox {
    type Transaction = Transaction<'static, Sqlite>;

    async fn begin(&self) -> Result<Self::Transaction, StoreError> {
        self.store.pool.begin_with(BEGIN).await.map_err(store_error)
    }

    async fn commit(&self, tx: Self::Transaction) -> Result<(), StoreError> {
        tx.commit().await.map_err(store_error)
    }

    async fn purge(&self, keep: Duration, limit: u32) -> Result<u64, StoreError> {
        let done = sqlx::query(self.store.handled()?.purge_inbox.sql())
            .bind(self.consumer.clone())
            .bind(millis(keep))
            .bind(i64::from(limit))
            .execute(&self.store.pool)
            .await
            .map_err(store_error)?;
        Ok(done.rows_affected())
    }
}

impl SqliteStore {
    fn handled(&self) -> Result<&Handled, StoreError> {
        self.statements.handled.as_ref().ok_or_else(|| {
            self.cannot(
                "it has no table for what consumers have handled",
                "open an inbox on Posthaste's own tables, which may be in the same file",
            )
        })
    }
}
