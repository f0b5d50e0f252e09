//! The consumer's side: handling each delivery once.

use std::time::Duration;

use posthaste_core::inbox::stored_key;
use posthaste_core::{Inbox, InboxStore, Mark, StoreError};
use sqlx::{PgConnection, Postgres, Transaction};

use crate::PostgresStore;
use crate::error::store_error;
use crate::handling::{begin, commit, prove_mark, set_mark};
use crate::rows::millis;
use crate::statements::Inbox as Statements;

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

    fn statements(&self) -> Result<&Statements, StoreError> {
        let inbox = self.store.statements.inbox.as_ref();
        inbox.ok_or_else(|| self.store.map.needs_native_tables("inbox"))
    }
}

impl Inbox for PostgresInbox {
    type Connection = PgConnection;

    async fn record(&self, tx: &mut PgConnection, key: &str) -> Result<bool, StoreError> {
        let done = self
            .statements()?
            .record_inbox
            .query()
            .bind(&self.consumer)
            .bind(stored_key(key))
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

impl InboxStore for PostgresInbox {
    type Transaction = Transaction<'static, Postgres>;

    async fn begin(&self) -> Result<Self::Transaction, StoreError> {
        begin(&self.store.pool).await
    }

    async fn commit(&self, tx: Self::Transaction) -> Result<(), StoreError> {
        commit(tx).await
    }

    async fn purge(&self, keep: Duration, limit: u32) -> Result<u64, StoreError> {
        let query = self
            .statements()?
            .purge_inbox
            .query()
            .bind(&self.consumer)
            .bind(millis(keep))
            .bind(i64::from(limit));
        let done = self.store.execute(query).await.map_err(store_error)?;
        Ok(done)
    }
}
