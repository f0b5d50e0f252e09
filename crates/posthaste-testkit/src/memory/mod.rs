//! An outbox without a database.
//!
//! The rows run [`posthaste_core::lifecycle::Life`] itself, so this store is the specification that the SQL of the
//! others is held to; it passes the same conformance suite.

mod admin;
mod claim;
mod inbox;
mod registry;
mod relay;
mod rows;
mod table;
mod tx;

use std::sync::Arc;

pub use inbox::MemoryInbox;
use posthaste_core::MessageId;
use rows::Shared;
pub use table::{MemoryLease, MemoryTable};
pub use tx::MemoryTx;

use crate::clock::TestClock;

/// An outbox in memory. Clones share it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use posthaste_core::{AdminStore, Message, OutboxOptions};
/// use posthaste_testkit::MemoryStore;
///
/// let store = MemoryStore::new();
/// let mut tx = store.begin();
/// tx.enqueue([Message::new("order-events", "{}")], &OutboxOptions::default()).await.unwrap();
/// tx.commit();
/// assert_eq!(store.list(&Default::default(), None, 10).await.unwrap().len(), 1);
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

    /// The inbox of one consumer.
    pub fn inbox(&self, consumer: impl Into<String>) -> MemoryInbox {
        MemoryInbox::new(consumer.into())
    }

    /// From now on these rows cannot be claimed, as if a constraint or a trigger objected, and no others.
    pub fn refuse_claims_of(&self, ids: impl IntoIterator<Item = MessageId>) {
        self.shared.rows().unchangeable = ids.into_iter().collect();
    }

    /// What transactions have written with [`MemoryTx::write_business_row`] and committed, in order.
    pub fn business_rows(&self) -> Vec<String> {
        self.shared.rows().business.clone()
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}
