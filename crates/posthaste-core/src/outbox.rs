//! The application's side of every store: what an outbox accepts, where it writes it, and whom it tells.
//!
//! [`Outbox`] is what applications are written against, [`StoreOutbox`] what a store gives them. A store itself implements
//! [`EnqueueOn`], [`Commit`] and [`Transactions`].

mod any;

use std::fmt;
use std::ops::DerefMut;
use std::sync::Arc;

use crate::enqueue::{EnqueueError, Enqueued, OutboxOptions, Prepared};
use crate::event::IntoMessage;
use crate::retry::MAX_DURATION;
use crate::store::StoreError;
use crate::wake::Notifier;

pub use any::{AnyConnection, AnyOutbox, AnyTransaction};

/// Enqueues messages in transactions that hold the application's own writes too.
///
/// Application code that is generic over it runs on any store: on that of a database in production, and on the one in
/// memory in its tests, whose transactions are as real (a rollback discards the events). [`AnyOutbox`] is one without a type
/// parameter.
///
/// # Contract
/// - What is enqueued in a transaction is delivered if the transaction commits, and never otherwise.
/// - A message that is refused ([`EnqueueError::Invalid`], [`EnqueueError::Encode`]) runs no statement: the transaction stays
///   usable.
/// - A dedupe key or an id that is there already is no error but [`Enqueued::Duplicate`], and writes nothing.
/// - A transaction that is dropped is rolled back.
///
/// # Examples
/// The business write is the application's own; it says on which connections it can run:
///
/// ```
/// use posthaste_core::{EnqueueError, Message, Outbox, StoreError};
///
/// trait Orders<C> {
///     fn insert(&self, conn: &mut C, order: u32) -> impl Future<Output = Result<(), StoreError>> + Send;
/// }
///
/// async fn place_order<O: Outbox>(
///     outbox: &O,
///     orders: &impl Orders<O::Connection>,
///     order: u32,
/// ) -> Result<(), EnqueueError> {
///     let mut tx = outbox.begin().await?;
///     orders.insert(&mut tx, order).await?;
///     outbox.enqueue(&mut tx, Message::new("order-events", "{}").key(order.to_string())).await?;
///     outbox.commit(tx).await?;
///     Ok(())
/// }
/// ```
pub trait Outbox: Send + Sync {
    /// What is written on: the driver's connection.
    type Connection: Send;

    /// An open transaction.
    type Transaction: DerefMut<Target = Self::Connection> + Send;

    /// Begins a transaction. Where the database has one writer at a time this waits for its turn.
    ///
    /// # Errors
    /// [`StoreErrorKind::Unavailable`](crate::store::StoreErrorKind::Unavailable) if no connection can be had.
    fn begin(&self) -> impl Future<Output = Result<Self::Transaction, StoreError>> + Send;

    /// Enqueues many messages or events at once.
    ///
    /// # Errors
    /// - [`EnqueueError::Invalid`], [`EnqueueError::Encode`]: one of them was refused. No statement ran, and the transaction
    ///   stays usable.
    /// - [`EnqueueError::Store`]: the database refused. None is written; roll the transaction back.
    fn enqueue_all<M: IntoMessage>(
        &self,
        conn: &mut Self::Connection,
        messages: impl IntoIterator<Item = M>,
    ) -> impl Future<Output = Result<Vec<Enqueued>, EnqueueError>> + Send;

    /// Enqueues one message or event.
    ///
    /// # Errors
    /// Those of [`Outbox::enqueue_all`].
    fn enqueue(
        &self,
        conn: &mut Self::Connection,
        message: impl IntoMessage,
    ) -> impl Future<Output = Result<Enqueued, EnqueueError>> + Send {
        let outcomes = self.enqueue_all(conn, [message]);
        async { Ok(outcomes.await?[0]) }
    }

    /// Commits the transaction, and wakes the relay where a notifier was given.
    ///
    /// # Errors
    /// Whether it was committed is not known if the connection broke; else it was not.
    fn commit(&self, tx: Self::Transaction) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Rolls the transaction back, and what was enqueued in it with it. Dropping the transaction does the same without
    /// waiting for the database.
    ///
    /// # Errors
    /// If the connection broke; the database rolls back then too.
    fn rollback(&self, tx: Self::Transaction) -> impl Future<Output = Result<(), StoreError>> + Send;
}

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

/// A store that begins and ends transactions for the application, which [`Outbox`] is made of.
pub trait Transactions: EnqueueOn<Self::Connection> + Commit<Self::Transaction> + Send + Sync {
    /// What is written on.
    type Connection: Send;

    /// An open transaction. Dropping it rolls it back.
    type Transaction: DerefMut<Target = Self::Connection> + Send;

    /// Begins one.
    fn begin(&self) -> impl Future<Output = Result<Self::Transaction, StoreError>> + Send;

    /// Rolls it back.
    fn rollback(&self, tx: Self::Transaction) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// The [`Outbox`] of a store. Cheap to clone.
///
/// Its own [`enqueue`](StoreOutbox::enqueue) takes every connection that the store can write on, also those of transactions
/// that were begun elsewhere or with another driver.
///
/// Stores make it: `store.outbox(OutboxOptions::new().source("urn:acme:shop"))`. Where a relay in the same process should not
/// wait for its next poll, give it a notifier and commit with [`commit`](StoreOutbox::commit).
#[derive(Clone)]
pub struct StoreOutbox<S> {
    store: S,
    options: Arc<OutboxOptions>,
    notifier: Option<Arc<dyn Notifier>>,
}

impl<S> StoreOutbox<S> {
    /// An outbox that accepts messages by these options and notifies no listener.
    pub fn new(store: S, mut options: OutboxOptions) -> Self {
        // Databases cannot add any duration to the present.
        options.dedupe_window = options.dedupe_window.min(MAX_DURATION);
        Self {
            store,
            options: Arc::new(options),
            notifier: None,
        }
    }

    /// Rings this notifier after every [`StoreOutbox::commit`], so that a relay need not wait for its next poll: that of a relay
    /// in the same process, or of a database that tells relays elsewhere.
    #[must_use]
    pub fn with_notifier(mut self, notifier: impl Notifier) -> Self {
        self.notifier = Some(Arc::new(notifier));
        self
    }

    /// Enqueues one message or event on the caller's connection: a transaction, or what else the store writes on.
    ///
    /// # Errors
    /// - [`EnqueueError::Invalid`], [`EnqueueError::Encode`]: the message was refused. No statement ran, and the transaction
    ///   stays usable.
    /// - [`EnqueueError::Store`]: the database refused. Its kind says whether to try the transaction again
    ///   ([`is_transient`](crate::store::StoreErrorKind::is_transient)) or to look at the schema.
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
    /// Those of [`StoreOutbox::enqueue`]. If one message is refused, none is written.
    pub async fn enqueue_all<C: ?Sized, M: IntoMessage>(
        &self,
        conn: &mut C,
        messages: impl IntoIterator<Item = M>,
    ) -> Result<Vec<Enqueued>, EnqueueError>
    where
        S: EnqueueOn<C>,
    {
        let prepared = Prepared::new(messages, &self.options)?;
        self.insert(conn, prepared).await
    }

    async fn insert<C: ?Sized>(&self, conn: &mut C, prepared: Prepared) -> Result<Vec<Enqueued>, EnqueueError>
    where
        S: EnqueueOn<C>,
    {
        if prepared.is_empty() {
            return Ok(Vec::new());
        }
        let stored = self.store.insert(conn, &prepared, &self.options).await?;
        Ok(prepared.outcomes(&stored))
    }

    /// Commits the transaction, then notifies. A plain `tx.commit()` is just as safe.
    ///
    /// # Errors
    /// Those of the transaction.
    pub async fn commit<T>(&self, tx: T) -> Result<(), StoreError>
    where
        S: Commit<T>,
    {
        self.store.commit(tx).await?;
        if let Some(notifier) = &self.notifier {
            notifier.notify();
        }
        Ok(())
    }
}

impl<S: Transactions> Outbox for StoreOutbox<S> {
    type Connection = S::Connection;
    type Transaction = S::Transaction;

    async fn begin(&self) -> Result<Self::Transaction, StoreError> {
        self.store.begin().await
    }

    fn enqueue_all<M: IntoMessage>(
        &self,
        conn: &mut Self::Connection,
        messages: impl IntoIterator<Item = M>,
    ) -> impl Future<Output = Result<Vec<Enqueued>, EnqueueError>> + Send {
        // Before the future, which can then be sent though the events may not.
        let prepared = Prepared::new(messages, &self.options);
        async {
            let mut prepared = prepared?;
            // The span that the future runs in may be another one than that of this call.
            prepared.recapture(&self.options);
            self.insert(conn, prepared).await
        }
    }

    async fn commit(&self, tx: Self::Transaction) -> Result<(), StoreError> {
        self.commit(tx).await
    }

    async fn rollback(&self, tx: Self::Transaction) -> Result<(), StoreError> {
        self.store.rollback(tx).await
    }
}

impl<S: fmt::Debug> fmt::Debug for StoreOutbox<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbox")
            .field("store", &self.store)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
