//! Any outbox behind one type.

use std::any::Any;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use async_trait::async_trait;

use super::Outbox;
use crate::enqueue::{EnqueueError, Enqueued};
use crate::event::IntoMessage;
use crate::message::Message;
use crate::store::StoreError;

/// An [`Outbox`] of which only the running program knows on which database it is: for applications that would rather not have
/// a type parameter. Cheap to clone.
///
/// # Examples
/// Business code asks its transaction for the connection that it knows:
///
/// ```
/// use posthaste_core::outbox::{AnyConnection, AnyOutbox};
/// use posthaste_core::{EnqueueError, Message, Outbox, StoreError};
///
/// # struct DbConnection;
/// # impl DbConnection { fn insert_order(&mut self, _: u32) {} }
/// struct Shop {
///     outbox: AnyOutbox,
/// }
///
/// fn insert_order(conn: &mut AnyConnection, order: u32) {
///     match conn.downcast_mut::<DbConnection>() {
///         Some(conn) => conn.insert_order(order),
///         None => {} // in a test without a database
///     }
/// }
///
/// impl Shop {
///     async fn place_order(&self, order: u32) -> Result<(), EnqueueError> {
///         let mut tx = self.outbox.begin().await?;
///         insert_order(&mut tx, order);
///         self.outbox.enqueue(&mut tx, Message::new("order-events", "{}").key(order.to_string())).await?;
///         self.outbox.commit(tx).await?;
///         Ok(())
///     }
/// }
/// ```
#[derive(Clone)]
pub struct AnyOutbox(Arc<dyn Begin>);

impl AnyOutbox {
    /// The same outbox without its type.
    pub fn new<O>(outbox: O) -> Self
    where
        O: Outbox<Connection: 'static, Transaction: 'static> + 'static,
    {
        Self(Arc::new(Typed(Arc::new(outbox))))
    }
}

impl fmt::Debug for AnyOutbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnyOutbox").finish_non_exhaustive()
    }
}

/// A transaction of an [`AnyOutbox`]. Dropping it rolls it back.
#[derive(Debug)]
#[must_use = "a transaction that is dropped is rolled back"]
pub struct AnyTransaction(AnyConnection);

/// What is written on in an [`AnyTransaction`].
pub struct AnyConnection(Box<dyn Open>);

impl AnyConnection {
    /// The connection itself, if it is of this type.
    pub fn downcast_mut<C: 'static>(&mut self) -> Option<&mut C> {
        self.0.connection().downcast_mut()
    }
}

impl fmt::Debug for AnyConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnyConnection").finish_non_exhaustive()
    }
}

impl Deref for AnyTransaction {
    type Target = AnyConnection;

    fn deref(&self) -> &AnyConnection {
        &self.0
    }
}

impl DerefMut for AnyTransaction {
    fn deref_mut(&mut self) -> &mut AnyConnection {
        &mut self.0
    }
}

impl Outbox for AnyOutbox {
    type Connection = AnyConnection;
    type Transaction = AnyTransaction;

    async fn begin(&self) -> Result<AnyTransaction, StoreError> {
        Ok(AnyTransaction(AnyConnection(self.0.begin().await?)))
    }

    fn enqueue_all<M: IntoMessage>(
        &self,
        conn: &mut AnyConnection,
        messages: impl IntoIterator<Item = M>,
    ) -> impl Future<Output = Result<Vec<Enqueued>, EnqueueError>> + Send {
        let messages: Result<Vec<_>, _> = messages.into_iter().map(M::into_message).collect();
        async { conn.0.enqueue_all(messages?).await }
    }

    async fn commit(&self, tx: AnyTransaction) -> Result<(), StoreError> {
        tx.0.0.commit().await
    }

    async fn rollback(&self, tx: AnyTransaction) -> Result<(), StoreError> {
        tx.0.0.rollback().await
    }
}

#[async_trait]
trait Begin: Send + Sync {
    async fn begin(&self) -> Result<Box<dyn Open>, StoreError>;
}

/// An open transaction, and the outbox that began it.
#[async_trait]
trait Open: Send {
    fn connection(&mut self) -> &mut dyn Any;

    async fn enqueue_all(&mut self, messages: Vec<Message>) -> Result<Vec<Enqueued>, EnqueueError>;

    async fn commit(self: Box<Self>) -> Result<(), StoreError>;

    async fn rollback(self: Box<Self>) -> Result<(), StoreError>;
}

struct Typed<O>(Arc<O>);

#[async_trait]
impl<O> Begin for Typed<O>
where
    O: Outbox<Connection: 'static, Transaction: 'static> + 'static,
{
    async fn begin(&self) -> Result<Box<dyn Open>, StoreError> {
        let tx = self.0.begin().await?;
        let outbox = Arc::clone(&self.0);
        Ok(Box::new(TypedTransaction { outbox, tx }))
    }
}

struct TypedTransaction<O: Outbox> {
    outbox: Arc<O>,
    tx: O::Transaction,
}

#[async_trait]
impl<O> Open for TypedTransaction<O>
where
    O: Outbox<Connection: 'static, Transaction: 'static> + 'static,
{
    fn connection(&mut self) -> &mut dyn Any {
        &mut *self.tx
    }

    async fn enqueue_all(&mut self, messages: Vec<Message>) -> Result<Vec<Enqueued>, EnqueueError> {
        self.outbox.enqueue_all(&mut self.tx, messages).await
    }

    async fn commit(self: Box<Self>) -> Result<(), StoreError> {
        self.outbox.commit(self.tx).await
    }

    async fn rollback(self: Box<Self>) -> Result<(), StoreError> {
        self.outbox.rollback(self.tx).await
    }
}
