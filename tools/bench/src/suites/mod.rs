//! The benchmarks.

pub(crate) mod backlog;
pub(crate) mod business;
pub(crate) mod drain;
pub(crate) mod enqueue;
pub(crate) mod failures;
pub(crate) mod instances;
pub(crate) mod kill;
pub(crate) mod latency;
pub(crate) mod open_transaction;
mod rounds;
pub(crate) mod snapshot;
