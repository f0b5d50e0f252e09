//! An outbox without a database.
//!
//! The rows run [`posthaste_core::lifecycle::RowModel`] itself, so this store is the specification that the SQL of the
//! others is held to; it passes the same conformance suite.

mod admin;
mod claim;
mod inbox;
mod outbox;
mod registry;
mod relay;
mod rows;
mod table;
mod tx;

use std::sync::Arc;

pub use inbox::MemoryInbox;
pub use outbox::MemoryOutbox;
use posthaste_core::{MessageId, OutboxOptions};
use rows::Shared;
pub use table::{MemoryLease, MemoryTable};
pub use tx::{MemoryConnection, MemoryTx};

use crate::clock::TestClock;

/// An outbox in memory. Clones share it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use posthaste_core::{Message, Outbox, OutboxOptions};
/// use posthaste_testing::{MemoryStore, assert_enqueued, assert_enqueued_count};
///
/// let store = MemoryStore::new();
/// let outbox = store.outbox(OutboxOptions::default());
///
/// let mut tx = outbox.begin().await.unwrap();
/// outbox.enqueue(&mut tx, Message::new("order-events", "1")).await.unwrap();
/// outbox.rollback(tx).await.unwrap();
///
/// let mut tx = outbox.begin().await.unwrap();
/// outbox.enqueue(&mut tx, Message::new("order-events", "2")).await.unwrap();
/// outbox.commit(tx).await.unwrap();
///
/// assert_enqueued_count(&store, 1).await;
/// assert_enqueued(&store, |message| message.payload == "2").await;
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct MemoryStore {
    shared: Arc<Shared>,
    clock: TestClock,
    table: MemoryTable,
}

impl MemoryStore {
    /// An empty outbox whose clock stands still until it is advanced.
    pub fn new() -> Self {
        Self::with_clock(TestClock::new())
    }

    /// An empty outbox with a clock of its own.
    pub fn with_clock(clock: TestClock) -> Self {
        Self {
            shared: Arc::default(),
            clock,
            table: MemoryTable::default(),
        }
    }

    /// The clock that stands for the database's.
    pub fn clock(&self) -> &TestClock {
        &self.clock
    }

    /// Begins a transaction. Dropped without [`MemoryTx::commit`] it leaves nothing.
    pub fn begin(&self) -> MemoryTx {
        MemoryTx::new(self.clone())
    }

    /// The application's side: enqueueing in its own transactions.
    pub fn outbox(&self, options: OutboxOptions) -> MemoryOutbox {
        MemoryOutbox::new(self.clone(), options)
    }

    /// The inbox of one consumer.
    pub fn inbox(&self, consumer: impl Into<String>) -> MemoryInbox {
        MemoryInbox::new(self.clone(), consumer.into())
    }

    /// From now on these rows cannot be claimed, as if a constraint or a trigger objected, and no others.
    pub fn refuse_claims_of(&self, ids: impl IntoIterator<Item = MessageId>) {
        self.shared.rows().unchangeable = ids.into_iter().collect();
    }

    /// What transactions have written with [`MemoryConnection::write_business_row`] and committed, in order.
    pub fn business_rows(&self) -> Vec<String> {
        self.shared.rows().business.clone()
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}
