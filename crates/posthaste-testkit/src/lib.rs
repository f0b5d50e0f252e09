//! Testing with Posthaste.
//!
//! For applications: a [`MemoryStore`] that behaves like a database's outbox, a [`TestClock`] that moves when told,
//! publishers that record or fail as scripted, [`assert_enqueued`] and [`drain`] over any store. For stores: the
//! conformance [`suite`], which every store passes; see [`Backend`] for how to run it on another one.

#![expect(clippy::missing_panics_doc, reason = "to panic is what assertions and cases are for")]

mod assertions;
mod backend;
mod clock;
mod ddl;
mod drain;
mod faulty_store;
mod fit;
mod memory;
mod publishers;
pub mod suite;
mod table;

pub use assertions::{assert_enqueued, assert_not_enqueued, enqueued};
pub use backend::{Backend, Trouble};
pub use clock::TestClock;
pub use ddl::{ddl, everything, id_literal};
pub use drain::drain;
pub use faulty_store::FaultyStore;
pub use fit::fit;
pub use memory::{MemoryInbox, MemoryLease, MemoryStore, MemoryTable, MemoryTx};
pub use publishers::{Fault, FaultyPublisher, NullPublisher, RecordingPublisher, Rule};
pub use table::{Need, Table};

/// Compiles the examples of the read-me.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadMe;
