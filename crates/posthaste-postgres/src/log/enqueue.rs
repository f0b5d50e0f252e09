//! The application's side: appending to the log in its own transactions.

use async_trait::async_trait;
use posthaste_core::enqueue::Prepared;
use posthaste_core::outbox::{Commit, EnqueueOn, Transactions};
use posthaste_core::store::ProducerStore;
use posthaste_core::{EnqueueError, Enqueued, Message, OutboxOptions, StoreError, StoreOutbox};
use sqlx::{PgConnection, Postgres, Transaction};

use super::PostgresLogStore;
use crate::error::store_error;
use crate::executor::EnqueueExecutor;
use crate::{BEGIN, pooling};

/// Appends messages to a log in the caller's transactions.
pub type PostgresLogOutbox = StoreOutbox<PostgresLogStore>;

impl<C: EnqueueExecutor + ?Sized> EnqueueOn<C> for PostgresLogStore {
    async fn insert(
        &self,
        conn: &mut C,
        messages: &Prepared,
        options: &OutboxOptions,
    ) -> Result<Vec<Enqueued>, EnqueueError> {
        let sessions = &self.log.sessions;
        sessions.detect_in_background(&self.log.pool);
        let is_kept = sessions.keep_statements();
        self.log.enqueue.run(conn, messages, options, is_kept).await
    }
}

impl Commit<Transaction<'_, Postgres>> for PostgresLogStore {
    async fn commit(&self, tx: Transaction<'_, Postgres>) -> Result<(), StoreError> {
        tx.commit().await.map_err(store_error)
    }
}

impl Transactions for PostgresLogStore {
    type Connection = PgConnection;
    type Transaction = Transaction<'static, Postgres>;

    async fn begin(&self) -> Result<Self::Transaction, StoreError> {
        pooling::begin(&self.log.pool, BEGIN).await.map_err(store_error)
    }

    async fn rollback(&self, tx: Self::Transaction) -> Result<(), StoreError> {
        tx.rollback().await.map_err(store_error)
    }
}

#[async_trait]
impl ProducerStore for PostgresLogStore {
    async fn enqueue_and_commit(
        &self,
        options: &OutboxOptions,
        messages: Vec<Message>,
    ) -> Result<Vec<Enqueued>, EnqueueError> {
        let mut tx = self.log.pool.begin().await.map_err(store_error)?;
        let outcomes = self.outbox(options.clone()).enqueue_all(&mut tx, messages).await?;
        tx.commit().await.map_err(store_error)?;
        // A caller without a transaction of its own has no notifier either. If this fails the relay finds out by polling.
        if let Some(beside) = &self.log.beside {
            drop(beside.notify().await);
        }
        Ok(outcomes)
    }
}
