//! The consumer's side: handling each delivery once.

use std::time::Duration;

use posthaste_core::{Inbox, StoreError};
use sqlx::PgConnection;

use crate::PostgresStore;
use crate::error::store_error;
use crate::rows::millis;

/// What one consumer has handled. Cheap to clone.
#[derive(Clone, Debug)]
pub struct PostgresInbox {
    store: PostgresStore,
    consumer: String,
}

impl PostgresInbox {
    pub(crate) fn new(store: PostgresStore, consumer: String) -> Self {
        Self { store, consumer }
    }
}

impl Inbox for PostgresInbox {
    type Connection = PgConnection;

    async fn record(&self, tx: &mut PgConnection, key: &str) -> Result<bool, StoreError> {
        let done = sqlx::query(self.store.statements.record_inbox.sql())
            .bind(&self.consumer)
            .bind(key)
            .execute(tx)
            .await
            .map_err(store_error)?;
        Ok(done.rows_affected() == 1)
    }
}

impl PostgresStore {
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
