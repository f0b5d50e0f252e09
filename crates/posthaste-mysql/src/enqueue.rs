//! The application's side: enqueueing in its own transactions.

use async_trait::async_trait;
use posthaste_core::enqueue::Prepared;
use posthaste_core::outbox::{Commit, EnqueueOn, Transactions};
use posthaste_core::store::ProducerStore;
use posthaste_core::{EnqueueError, Enqueued, Message, OutboxOptions, StoreError, StoreOutbox};
use sqlx::{MySql, MySqlConnection, Transaction};

use crate::error::store_error;
use crate::executor::{EnqueueExecutor, NewRows};
use crate::{MySqlEnqueue, MySqlStore};

/// Enqueues messages in the caller's transactions.
pub type MySqlOutbox = StoreOutbox<MySqlStore>;

impl<C: EnqueueExecutor + ?Sized> EnqueueOn<C> for MySqlStore {
    async fn insert(
        &self,
        conn: &mut C,
        messages: &Prepared,
        options: &OutboxOptions,
    ) -> Result<Vec<Enqueued>, EnqueueError> {
        let steps = MySqlEnqueue::of(&self.map, &self.statements);
        let rows = NewRows {
            progress: steps.begin(messages, options.dedupe_window)?,
            prepared: messages,
            steps,
        };
        Ok(conn.insert(rows).await?)
    }
}

impl Commit<Transaction<'_, MySql>> for MySqlStore {
    async fn commit(&self, tx: Transaction<'_, MySql>) -> Result<(), StoreError> {
        tx.commit().await.map_err(store_error)
    }
}

impl Transactions for MySqlStore {
    type Connection = MySqlConnection;
    type Transaction = Transaction<'static, MySql>;

    async fn begin(&self) -> Result<Self::Transaction, StoreError> {
        self.begin_transaction().await
    }

    async fn rollback(&self, tx: Self::Transaction) -> Result<(), StoreError> {
        tx.rollback().await.map_err(store_error)
    }
}

#[async_trait]
impl ProducerStore for MySqlStore {
    async fn enqueue_and_commit(
        &self,
        options: &OutboxOptions,
        messages: Vec<Message>,
    ) -> Result<Vec<Enqueued>, EnqueueError> {
        let mut tx = self.begin().await.map_err(store_error)?;
        let outcomes = self.outbox(options.clone()).enqueue_all(&mut *tx, messages).await?;
        tx.commit().await.map_err(store_error)?;
        Ok(outcomes)
    }
}
