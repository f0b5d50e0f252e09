//! The application's side: enqueueing in its own transactions.

use async_trait::async_trait;
use posthaste_core::enqueue::Prepared;
use posthaste_core::outbox::Front;
use posthaste_core::store::ProducerStore;
use posthaste_core::wake::Doorbell;
use posthaste_core::{EnqueueError, Enqueued, IntoMessage, Message, OutboxOptions, StoreError};
use sqlx::{Postgres, Transaction};

use crate::error::store_error;
use crate::runner::{NewRows, Runner};
use crate::{BEGIN, PostgresStore, plain_insert, pooling};

/// Enqueues messages in the caller's transactions. Cheap to clone.
#[derive(Clone, Debug)]
pub struct PostgresOutbox {
    store: PostgresStore,
    front: Front,
}

impl PostgresOutbox {
    pub(crate) fn new(store: PostgresStore, options: OutboxOptions) -> Self {
        Self {
            store,
            front: Front::new(options),
        }
    }

    /// Rings this doorbell after every [`PostgresOutbox::commit`].
    #[must_use]
    pub fn with_doorbell(mut self, doorbell: impl Doorbell) -> Self {
        self.front.set_doorbell(doorbell);
        self
    }

    /// Enqueues one message or event on the caller's connection: a sqlx transaction or connection, or (with the feature
    /// `tokio-postgres`) a transaction or client of that crate.
    ///
    /// A refused message runs no SQL, so the transaction stays usable.
    pub async fn enqueue<C: Runner + ?Sized>(
        &self,
        conn: &mut C,
        message: impl IntoMessage,
    ) -> Result<Enqueued, EnqueueError> {
        let outcomes = self.enqueue_all(conn, [message]).await?;
        Ok(outcomes[0])
    }

    /// Enqueues many with one statement; all are written or, if one is refused, none.
    pub async fn enqueue_all<C: Runner + ?Sized, M: IntoMessage>(
        &self,
        conn: &mut C,
        messages: impl IntoIterator<Item = M>,
    ) -> Result<Vec<Enqueued>, EnqueueError> {
        let prepared = Prepared::new(messages, self.front.options())?;
        if prepared.is_empty() {
            return Ok(Vec::new());
        }
        self.store.sessions.detect_in_background(&self.store.pool);
        let stored = match (&self.store.statements.dedupe, &self.store.statements.plain) {
            (Some(dedupe), _) => {
                let rows = NewRows::new(&prepared, self.front.options().dedupe_window);
                conn.insert(dedupe.enqueue.clone().into(), rows).await?
            }
            (None, Some(plain)) => plain_insert::run(conn, &self.store.map, plain, &prepared).await?,
            (None, None) => Vec::new(),
        };
        Ok(prepared.outcomes(&stored))
    }

    /// Commits the transaction, then rings the doorbell, so that relays need not wait for their next poll. A plain
    /// `tx.commit()` is just as safe.
    pub async fn commit(&self, tx: Transaction<'_, Postgres>) -> Result<(), StoreError> {
        tx.commit().await.map_err(store_error)?;
        self.front.ring();
        Ok(())
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
        // Whoever has no transaction of its own has no doorbell either. If this fails the relay finds out by polling.
        let ring = self.statements.common.ring.query().bind(self.channel());
        drop(self.execute_alone(ring).await);
        Ok(outcomes)
    }
}
