//! The application's side: enqueueing in its own transactions.

use async_trait::async_trait;
use posthaste_core::enqueue::Prepared;
use posthaste_core::outbox::{Commit, EnqueueOn, Transactions};
use posthaste_core::store::ProducerStore;
use posthaste_core::{EnqueueError, Enqueued, Message, OutboxOptions, StoreError, StoreOutbox};
use sqlx::{PgConnection, Postgres, Transaction};

use crate::error::store_error;
use crate::executor::EnqueueExecutor;
use crate::{BEGIN, PostgresStore, pooling};

/// Enqueues messages in the caller's transactions: those of sqlx, or (with the feature `tokio-postgres`) of that crate.
pub type PostgresOutbox = StoreOutbox<PostgresStore>;

impl<C: EnqueueExecutor + ?Sized> EnqueueOn<C> for PostgresStore {
    async fn insert(
        &self,
        conn: &mut C,
        messages: &Prepared,
        options: &OutboxOptions,
    ) -> Result<Vec<Enqueued>, EnqueueError> {
        self.sessions.detect_in_background(&self.pool);
        let is_kept = self.sessions.keep_statements();
        self.enqueue.run(conn, messages, options, is_kept).await
    }
}

impl Commit<Transaction<'_, Postgres>> for PostgresStore {
    async fn commit(&self, tx: Transaction<'_, Postgres>) -> Result<(), StoreError> {
        tx.commit().await.map_err(store_error)
    }
}

impl Transactions for PostgresStore {
    type Connection = PgConnection;
    type Transaction = Transaction<'static, Postgres>;

    async fn begin(&self) -> Result<Self::Transaction, StoreError> {
        pooling::begin(&self.pool, BEGIN).await.map_err(store_error)
    }

    async fn rollback(&self, tx: Self::Transaction) -> Result<(), StoreError> {
        tx.rollback().await.map_err(store_error)
    }
}

#[async_trait]
impl ProducerStore for PostgresStore {
    async fn enqueue_and_commit(
        &self,
        options: &OutboxOptions,
        messages: Vec<Message>,
    ) -> Result<Vec<Enqueued>, EnqueueError> {
        let mut tx = pooling::begin(&self.pool, BEGIN).await.map_err(store_error)?;
        let outcomes = self.outbox(options.clone()).enqueue_all(&mut tx, messages).await?;
        tx.commit().await.map_err(store_error)?;
        // A caller without a transaction of its own has no notifier either. If this fails the relay finds out by polling.
        drop(self.notify().await);
        Ok(outcomes)
    }
}

impl PostgresStore {
    /// Wakes the relays that listen.
    pub(crate) async fn notify(&self) -> sqlx::Result<()> {
        let notify = self.statements.common.notify.query().bind(self.channel());
        self.execute_alone(notify).await.map(drop)
    }
}
