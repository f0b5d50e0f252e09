//! The consumer's side: handling each delivery once.

use std::time::Duration;

use posthaste_core::inbox::stored_key;
use posthaste_core::{Inbox, InboxStore, Mark, StoreError};
use posthaste_sql::savepoint;
use sqlx::{AssertSqlSafe, Executor, Sqlite, SqliteConnection, Transaction};

use crate::SqliteStore;
use crate::begin::begin;
use crate::error::store_error;
use crate::rows::millis;
use crate::statements::Handled;

/// What one consumer has handled. Cheap to clone.
///
/// Begin the handler's transactions with `BEGIN IMMEDIATE` (`pool.begin_with("BEGIN IMMEDIATE")`): SQLite does not let a
/// transaction that has read wait for the write lock, but fails it at once if another transaction has written since.
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
            .bind(stored_key(key).into_owned())
            .execute(tx)
            .await
            .map_err(store_error)?;
        Ok(done.rows_affected() == 1)
    }

    async fn mark(&self, tx: &mut SqliteConnection, mark: Mark) -> Result<(), StoreError> {
        let set = tx.execute(AssertSqlSafe(savepoint::set(mark)));
        set.await.map(drop).map_err(store_error)
    }

    /// A full disk, an interrupt or `or rollback` ends the whole transaction; what follows is written without one.
    async fn prove(&self, tx: &mut SqliteConnection, mark: Mark) -> Result<(), StoreError> {
        match tx.execute(AssertSqlSafe(savepoint::release(mark))).await {
            Ok(_) => Ok(()),
            Err(error) if is_lost(&error) => Err(Mark::lost(error)),
            Err(error) => Err(store_error(error)),
        }
    }
}

/// There is no such savepoint: the transaction in which it was set is over.
fn is_lost(error: &sqlx::Error) -> bool {
    let said = error.as_database_error();
    said.is_some_and(|error| error.message().contains("no such savepoint"))
}

impl InboxStore for SqliteInbox {
    type Transaction = Transaction<'static, Sqlite>;

    async fn begin(&self) -> Result<Self::Transaction, StoreError> {
        let mut tx = begin(&self.store.pool).await.map_err(store_error)?;
        self.mark(&mut tx, Mark::BEGIN).await?;
        Ok(tx)
    }

    async fn commit(&self, mut tx: Self::Transaction) -> Result<(), StoreError> {
        self.prove(&mut tx, Mark::BEGIN).await?;
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
        let inbox = self.statements.handled.as_ref();
        inbox.ok_or_else(|| self.map.needs_native_tables("inbox"))
    }
}
