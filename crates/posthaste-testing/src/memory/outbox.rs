//! The application's side: enqueueing in its own transactions.

use posthaste_core::enqueue::Prepared;
use posthaste_core::outbox::{Commit, EnqueueOn, Transactions};
use posthaste_core::{EnqueueError, Enqueued, OutboxOptions, StoreError, StoreOutbox};

use super::{MemoryConnection, MemoryStore, MemoryTx};

/// Enqueues messages in transactions of a [`MemoryStore`].
pub type MemoryOutbox = StoreOutbox<MemoryStore>;

impl EnqueueOn<MemoryConnection> for MemoryStore {
    async fn insert(
        &self,
        conn: &mut MemoryConnection,
        messages: &Prepared,
        options: &OutboxOptions,
    ) -> Result<Vec<Enqueued>, EnqueueError> {
        Ok(conn.insert(messages, options.dedupe_window).await)
    }
}

/// As [`MemoryOutbox::enqueue`] takes a transaction of other databases.
impl EnqueueOn<MemoryTx> for MemoryStore {
    async fn insert(
        &self,
        tx: &mut MemoryTx,
        messages: &Prepared,
        options: &OutboxOptions,
    ) -> Result<Vec<Enqueued>, EnqueueError> {
        Ok((**tx).insert(messages, options.dedupe_window).await)
    }
}

impl Commit<MemoryTx> for MemoryStore {
    async fn commit(&self, tx: MemoryTx) -> Result<(), StoreError> {
        tx.commit();
        Ok(())
    }
}

impl Transactions for MemoryStore {
    type Connection = MemoryConnection;
    type Transaction = MemoryTx;

    async fn begin(&self) -> Result<MemoryTx, StoreError> {
        Ok(self.begin())
    }

    async fn rollback(&self, tx: MemoryTx) -> Result<(), StoreError> {
        tx.rollback();
        Ok(())
    }
}
