//! What a consumer did.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a consumer did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConsumerReport {
    /// Events handled.
    pub handled: u64,
    /// Events that had been handled before.
    pub duplicates: u64,
    /// Records passed over, because no handler is registered for them or they have no value.
    pub skipped: u64,
    /// Failed attempts that were followed by another.
    pub retried: u64,
    /// Events sent to a dead-letter topic.
    pub dead_letters: u64,
}

/// The report, while it is being written.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) handled: AtomicU64,
    pub(crate) duplicates: AtomicU64,
    pub(crate) skipped: AtomicU64,
    pub(crate) retried: AtomicU64,
    pub(crate) dead_letters: AtomicU64,
}

impl Totals {
    pub(crate) fn report(&self) -> ConsumerReport {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        ConsumerReport {
            handled: read(&self.handled),
            duplicates: read(&self.duplicates),
            skipped: read(&self.skipped),
            retried: read(&self.retried),
            dead_letters: read(&self.dead_letters),
        }
    }
}
