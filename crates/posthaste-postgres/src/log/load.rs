//! How much of a reader is in flight, as the other readers of its process see it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::session::Session;

/// How much of a reader is in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Load {
    pub(super) in_flight: usize,
    /// Nothing else may be in flight beside what is.
    is_alone: bool,
    /// It has something that waits for nothing else to be in flight.
    waits_to_be_alone: bool,
}

impl Load {
    /// Whether nothing of others may be handed out.
    pub(super) fn is_exclusive(self) -> bool {
        self.is_alone || self.waits_to_be_alone
    }
}

/// Looked at without waiting for the reader.
#[derive(Debug, Default)]
pub(super) struct AtomicLoad {
    in_flight: AtomicUsize,
    is_alone: AtomicBool,
    waits_to_be_alone: AtomicBool,
}

impl AtomicLoad {
    pub(super) fn get(&self) -> Load {
        Load {
            in_flight: self.in_flight.load(Ordering::Acquire),
            is_alone: self.is_alone.load(Ordering::Acquire),
            waits_to_be_alone: self.waits_to_be_alone.load(Ordering::Acquire),
        }
    }

    /// That of a session; none for one that does not read.
    pub(super) fn set(&self, session: Option<&Session>) {
        let in_flight = session.map_or(0, Session::in_flight);
        let is_alone = session.is_some_and(Session::is_alone);
        let waits = session.is_some_and(|session| session.guard.waits());
        self.in_flight.store(in_flight, Ordering::Release);
        self.is_alone.store(is_alone, Ordering::Release);
        self.waits_to_be_alone.store(waits, Ordering::Release);
    }
}
