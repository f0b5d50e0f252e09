//! Testing with Posthaste.
//!
//! For applications: a [`MemoryStore`] that behaves like a database's outbox, a [`TestClock`] that moves when told,
//! publishers that record or fail as scripted, and assertions over any store. For stores: the conformance [`suite`],
//! which every store passes; see [`Backend`] for how to run it on another one.

pub mod backend;
pub mod clock;
pub mod memory;
pub mod suite;

pub use backend::Backend;
pub use clock::TestClock;
pub use memory::{MemoryInbox, MemoryStore, MemoryTx};
