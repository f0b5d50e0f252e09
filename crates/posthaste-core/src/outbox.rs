//! The application's side of every store: what an outbox accepts, where it writes it, and whom it tells.

use std::fmt;
use std::sync::Arc;

use crate::enqueue::{EnqueueError, Enqueued, OutboxOptions, Prepared};
use crate::event::IntoMessage;
use crate::retry::MAX_DURATION;
use crate::store::StoreError;
use crate::wake::Doorbell;

/// A store that writes messages on a connection of the application's, of the type `C`.
pub trait EnqueueOn<C: ?Sized> {
    /// Writes messages that were checked, all or none, and says of each what became of it. There is one at least.
    ///
    /// # Errors
    /// Nothing is written then, and the caller's transaction stays usable unless the database has ended it.
    fn insert(
        &self,
        conn: &mut C,
        messages: &Prepared,
        options: &OutboxOptions,
    ) -> impl Future<Output = Result<Vec<Enqueued>, EnqueueError>> + Send;
}

/// A store that commits transactions of the type `T` for the application.
pub trait Commit<T> {
    /// Commits it.
    ///
    /// # Errors
    /// Whether it was committed is not known if the connection broke; else it was not.
    fn commit(&self, tx: T) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// Enqueues messages in the caller's transactions. Cheap to clone.
#[derive(Clone)]
pub struct Outbox<S> {
    store: S,
    options: Arc<OutboxOptions>,
    doorbell: Option<Arc<dyn Doorbell>>,
}

impl<S> Outbox<S> {
    /// An outbox that accepts messages by these options and rings no doorbell.
    pub fn new(store: S, mut options: OutboxOptions) -> Self {
        // Databases cannot add any duration to the present.
        options.dedupe_window = options.dedupe_window.min(MAX_DURATION);
        Self {
            store,
            options: Arc::new(options),
            doorbell: None,
        }
    }

    /// Rings this doorbell after every [`Outbox::commit`], so that a relay need not wait for its next poll: that of a relay
    /// in the same process, or of a database that tells relays elsewhere.
    #[must_use]
    pub fn with_doorbell(mut self, doorbell: impl Doorbell) -> Self {
        self.doorbell = Some(Arc::new(doorbell));
        self
    }

    /// Enqueues one message or event on the caller's connection: a transaction, or what else the store writes on.
    ///
    /// # Errors
    /// A message that is refused runs no SQL, and one that the database refuses is undone alone: the transaction stays
    /// usable, unless the server ended it because of a deadlock.
    pub async fn enqueue<C: ?Sized>(&self, conn: &mut C, message: impl IntoMessage) -> Result<Enqueued, EnqueueError>
    where
        S: EnqueueOn<C>,
    {
        let outcomes = self.enqueue_all(conn, [message]).await?;
        Ok(outcomes[0])
    }

    /// Enqueues many at once.
    ///
    /// # Errors
    /// Those of [`Outbox::enqueue`]. If one message is refused, none is written.
    pub async fn enqueue_all<C: ?Sized, M: IntoMessage>(
        &self,
        conn: &mut C,
        messages: impl IntoIterator<Item = M>,
    ) -> Result<Vec<Enqueued>, EnqueueError>
    where
        S: EnqueueOn<C>,
    {
        let prepared = Prepared::new(messages, &self.options)?;
        if prepared.is_empty() {
            return Ok(Vec::new());
        }
        let stored = self.store.insert(conn, &prepared, &self.options).await?;
        Ok(prepared.outcomes(&stored))
    }

    /// Commits the transaction, then rings the doorbell. A plain `tx.commit()` is just as safe.
    ///
    /// # Errors
    /// Those of the transaction.
    pub async fn commit<T>(&self, tx: T) -> Result<(), StoreError>
    where
        S: Commit<T>,
    {
        self.store.commit(tx).await?;
        if let Some(doorbell) = &self.doorbell {
            doorbell.ring();
        }
        Ok(())
    }
}

impl<S: fmt::Debug> fmt::Debug for Outbox<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbox")
            .field("store", &self.store)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
