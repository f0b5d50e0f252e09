//! Tests of applications that use Posthaste.
//!
//! A [`MemoryStore`] behaves like a database's outbox, rollbacks included; its [`outbox`](MemoryStore::outbox) goes wherever
//! the application takes an [`Outbox`](posthaste_core::Outbox). A [`TestClock`] moves when told, publishers record or fail as
//! scripted. The assertions, [`drain`] and [`deliver_all`] work on any store, so also on that of a real database.
//!
//! Applications use it as `posthaste::testing`, with the feature `testing`.

#![expect(clippy::missing_panics_doc, reason = "to panic is what assertions are for")]

mod assertions;
mod clock;
mod drain;
mod memory;
mod publishers;

pub use assertions::{assert_enqueued, assert_enqueued_count, assert_event, assert_not_enqueued, enqueued};
pub use clock::TestClock;
pub use drain::{deliver_all, drain};
pub use memory::{MemoryConnection, MemoryInbox, MemoryLease, MemoryOutbox, MemoryStore, MemoryTable, MemoryTx};
pub use publishers::{Fault, FaultyPublisher, NullPublisher, RecordingPublisher, Rule};

/// Compiles the examples of the read-me.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadMe;
