//! The application's side: enqueueing in its own transactions.

use async_trait::async_trait;
use posthaste_core::enqueue::Prepared;
use posthaste_core::outbox::Front;
use posthaste_core::store::ProducerStore;
use posthaste_core::wake::Doorbell;
use posthaste_core::{EnqueueError, Enqueued, IntoMessage, Message, OutboxOptions, StoreError};
use sqlx::{MySql, Transaction};

use crate::MySqlStore;
use crate::error::store_error;
use crate::runner::{NewRows, Runner};

/// Enqueues messages in the caller's transactions. Cheap to clone.
#[derive(Clone, Debug)]
pub struct MySqlOutbox {
    store: MySqlStore,
    front: Front,
}

impl MySqlOutbox {
    pub(crate) fn new(store: MySqlStore, options: OutboxOptions) -> Self {
        Self {
            store,
            front: Front::new(options),
        }
    }

    /// Rings this doorbell after every [`MySqlOutbox::commit`]. MySQL has none of its own: relays elsewhere find the work
    /// at their next poll, a relay in the same process can be told at once.
    #[must_use]
    pub fn with_doorbell(mut self, doorbell: impl Doorbell) -> Self {
        self.front.set_doorbell(doorbell);
        self
    }

    /// Enqueues one message or event on the caller's connection: a sqlx transaction, connection or pool connection.
    ///
    /// A refused message runs no SQL, and one that the database refuses is undone alone: the transaction stays usable,
    /// unless the server ended it because of a deadlock.
    pub async fn enqueue<C: Runner + ?Sized>(
        &self,
        conn: &mut C,
        message: impl IntoMessage,
    ) -> Result<Enqueued, EnqueueError> {
        let outcomes = self.enqueue_all(conn, [message]).await?;
        Ok(outcomes[0])
    }

    /// Enqueues many at once; all are written or, if one is refused, none.
    pub async fn enqueue_all<C: Runner + ?Sized, M: IntoMessage>(
        &self,
        conn: &mut C,
        messages: impl IntoIterator<Item = M>,
    ) -> Result<Vec<Enqueued>, EnqueueError> {
        let prepared = Prepared::new(messages, self.front.options())?;
        if prepared.is_empty() {
            return Ok(Vec::new());
        }
        let rows = NewRows::new(&prepared, &self.store.map, self.front.options().dedupe_window)?;
        let stored = conn.insert(self.store.statements.clone().into(), rows).await?;
        Ok(prepared.outcomes(&stored))
    }

    /// Commits the transaction, then rings the doorbell, so that relays need not wait for their next poll. A plain
    /// `tx.commit()` is just as safe.
    pub async fn commit(&self, tx: Transaction<'_, MySql>) -> Result<(), StoreError> {
        tx.commit().await.map_err(store_error)?;
        self.front.ring();
        Ok(())
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
