//! The consumer's side: handling each delivery once.

use std::time::Duration;

use posthaste_core::{Inbox, StoreError};
use sqlx::SqliteConnection;

use crate::SqliteStore;
use crate::error::store_error;
use crate::rows::millis;

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
        let done = sqlx::query(self.store.statements.record_inbox.sql())
            .bind(self.consumer.clone())
            .bind(key.to_owned())
            .execute(tx)
            .await
            .map_err(store_error)?;
        Ok(done.rows_affected() == 1)
    }
}

impl SqliteStore {
    /// Forgets deliveries handled longer than `keep` ago, at most `limit`, and returns how many. Keep them longer than
    /// the broker can deliver again.
    pub async fn purge_inbox(&self, keep: Duration, limit: u32) -> Result<u64, StoreError> {
        let done = sqlx::query(self.statements.purge_inbox.sql())
            .bind(millis(keep))
            .bind(i64::from(limit))
            .execute(&self.pool)
            .await
            .map_err(store_error)?;
        Ok(done.rows_affected())
    }
}
