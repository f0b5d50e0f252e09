//! The application's side: enqueueing in its own transactions.

use async_trait::async_trait;
use posthaste_core::enqueue::Prepared;
use posthaste_core::outbox::{Commit, EnqueueOn, Transactions};
use posthaste_core::store::ProducerStore;
use posthaste_core::{EnqueueError, Enqueued, Message, OutboxOptions, StoreError, StoreOutbox};
use sqlx::{Sqlite, SqliteConnection, Transaction};

use crate::begin::begin;
use crate::error::store_error;
use crate::executor::{EnqueueExecutor, InsertStatements, NewRows};
use crate::prepare::EnqueueStatements;
use crate::{SqliteEnqueue, SqliteStore};

/// Enqueues messages in the caller's transactions.
pub type SqliteOutbox = StoreOutbox<SqliteStore>;

impl<C: EnqueueExecutor + ?Sized> EnqueueOn<C> for SqliteStore {
    async fn insert(
        &self,
        conn: &mut C,
        messages: &Prepared,
        options: &OutboxOptions,
    ) -> Result<Vec<Enqueued>, EnqueueError> {
        let steps = SqliteEnqueue::of(&self.map, EnqueueStatements::of_queue(&self.statements));
        let rows = NewRows {
            progress: steps.begin(messages, options.dedupe_window)?,
            prepared: messages,
            steps,
        };
        Ok(conn.insert(InsertStatements(self.clone()), rows).await?)
    }
}

impl Commit<Transaction<'_, Sqlite>> for SqliteStore {
    async fn commit(&self, tx: Transaction<'_, Sqlite>) -> Result<(), StoreError> {
        tx.commit().await.map_err(store_error)
    }
}

impl Transactions for SqliteStore {
    type Connection = SqliteConnection;
    type Transaction = Transaction<'static, Sqlite>;

    async fn begin(&self) -> Result<Self::Transaction, StoreError> {
        begin(&self.pool).await.map_err(store_error)
    }

    async fn rollback(&self, tx: Self::Transaction) -> Result<(), StoreError> {
        tx.rollback().await.map_err(store_error)
    }
}

#[async_trait]
impl ProducerStore for SqliteStore {
    async fn enqueue_and_commit(
        &self,
        options: &OutboxOptions,
        messages: Vec<Message>,
    ) -> Result<Vec<Enqueued>, EnqueueError> {
        let mut tx = begin(&self.pool).await.map_err(store_error)?;
        let outcomes = self.outbox(options.clone()).enqueue_all(&mut tx, messages).await?;
        tx.commit().await.map_err(store_error)?;
        Ok(outcomes)
    }
}
