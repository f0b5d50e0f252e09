//! What all parts of a running consumer share.

use std::sync::atomic::{AtomicU64, Ordering};

use posthaste_core::InboxStore;

use crate::config::ConsumerConfig;
use crate::dead_letters::DeadLetters;
use crate::outage::Outage;
use crate::route::Routes;

pub(crate) struct Engine<I: InboxStore> {
    pub(crate) config: ConsumerConfig,
    pub(crate) inbox: I,
    pub(crate) routes: Routes<I::Connection>,
    pub(crate) dead_letters: DeadLetters,
    pub(crate) database: Outage,
    pub(crate) totals: Totals,
}

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
