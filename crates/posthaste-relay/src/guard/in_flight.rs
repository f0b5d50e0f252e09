//! What is claimed and not yet settled: the bound on memory, and the list of leases to renew.

use std::collections::HashMap;
use std::iter;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use posthaste_core::lifecycle::LeaseToken;
use tokio::sync::Notify;

use crate::guard::lease::BatchLease;
use crate::reported::InFlightMessage;

#[derive(Debug, Default)]
pub(crate) struct InFlight {
    state: Mutex<State>,
    /// Of the messages in flight, the ones whose verdicts are on their way to the database.
    answered: AtomicU32,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    load: Load,
    leases: HashMap<LeaseToken, Arc<BatchLease>>,
}

impl State {
    fn make_room(&mut self, lease: &BatchLease, message: &InFlightMessage) -> u32 {
        if !lease.is_awaited(message.place) {
            return 0;
        }
        self.load.messages = self.load.messages.saturating_sub(1);
        self.load.bytes = self.load.bytes.saturating_sub(message.bytes);
        1
    }
}

/// How much is in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) messages: u32,
    pub(crate) bytes: u64,
}

impl InFlight {
    pub(crate) fn admit(&self, lease: Arc<BatchLease>, load: Load) {
        let mut state = self.state();
        state.load.messages += load.messages;
        state.load.bytes += load.bytes;
        state.leases.insert(lease.token, lease);
    }

    /// Takes note of verdicts that are about to be written: from now on it is the database that is waited for.
    pub(crate) fn answered(&self, messages: usize) {
        self.answered_in_part(u32::try_from(messages).unwrap_or(u32::MAX));
        self.changed.notify_waiters();
    }

    /// The same, of some messages of a call whose last answer is still to come.
    pub(crate) fn answered_in_part(&self, messages: u32) {
        self.answered.fetch_add(messages, Ordering::AcqRel);
    }

    /// The publisher has answered for all messages of a call.
    pub(crate) fn call_ended(&self) {
        self.changed.notify_waiters();
    }

    /// How many messages the publisher owes an answer for.
    pub(crate) fn unanswered(&self) -> u32 {
        let state = self.state();
        state
            .load
            .messages
            .saturating_sub(self.answered.load(Ordering::Acquire))
    }

    /// Takes settled messages out. One that was set aside before takes no place any more.
    pub(crate) fn finish<'a>(&self, messages: impl Iterator<Item = &'a InFlightMessage>) {
        let mut state = self.state();
        let mut gone = 0;
        for message in messages {
            let Some(lease) = state.leases.get(&message.token).cloned() else {
                continue;
            };
            gone += state.make_room(&lease, message);
            if lease.settled(iter::once(message.place)) {
                state.leases.remove(&message.token);
            }
        }
        // Only what was answered is settled or set aside.
        self.no_longer_answered(gone);
        drop(state);
        self.changed.notify_waiters();
    }

    /// Takes settled messages of one claim out, none of which was set aside.
    pub(crate) fn finish_of(&self, token: LeaseToken, places: impl Iterator<Item = u32>, load: Load) {
        let mut state = self.state();
        if let Some(lease) = state.leases.get(&token).cloned() {
            state.load.messages = state.load.messages.saturating_sub(load.messages);
            state.load.bytes = state.load.bytes.saturating_sub(load.bytes);
            self.no_longer_answered(load.messages);
            if lease.settled(places) {
                state.leases.remove(&token);
            }
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// The first claim of which something is waited for.
    pub(crate) fn oldest_claim(&self) -> Option<u64> {
        let state = self.state();
        let busy = state.leases.values().filter(|lease| lease.is_busy());
        busy.map(|lease| lease.claim).min()
    }

    /// Takes a message out whose row stays under its lease, which is renewed as before.
    pub(crate) fn set_aside(&self, message: &InFlightMessage) {
        let mut state = self.state();
        if let Some(lease) = state.leases.get(&message.token).cloned() {
            let gone = state.make_room(&lease, message);
            self.no_longer_answered(gone);
            lease.set_aside(message.place);
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// Whether no other relay can have had this message since it was claimed.
    pub(crate) fn held_throughout(&self, message: &InFlightMessage) -> bool {
        let state = self.state();
        let lease = state.leases.get(&message.token);
        lease.is_some_and(|lease| lease.held_throughout(message.id))
    }

    pub(crate) fn load(&self) -> Load {
        self.state().load
    }

    pub(crate) fn leases(&self) -> Vec<Arc<BatchLease>> {
        self.state().leases.values().cloned().collect()
    }

    /// Keeps everything that was not yet handed to the publisher from being handed over.
    pub(crate) fn revoke_all(&self) {
        self.leases().iter().for_each(|lease| lease.revoke());
    }

    /// Waits until the load satisfies a condition.
    pub(crate) async fn wait_until(&self, satisfied: impl Fn(Load) -> bool) {
        loop {
            // Registered before the look, so that no change in between is missed.
            let changed = self.changed.notified();
            if satisfied(self.load()) {
                return;
            }
            changed.await;
        }
    }

    /// Waits until the publisher has answered for every message.
    pub(crate) async fn wait_for_answers(&self) {
        loop {
            let changed = self.changed.notified();
            if self.unanswered() == 0 {
                return;
            }
            changed.await;
        }
    }

    /// Waits until every message of a batch is settled or set aside.
    pub(crate) async fn wait_for_batch(&self, token: LeaseToken) {
        loop {
            let changed = self.changed.notified();
            if !self.state().leases.get(&token).is_some_and(|lease| lease.is_busy()) {
                return;
            }
            changed.await;
        }
    }

    fn no_longer_answered(&self, messages: u32) {
        let less = |answered: u32| Some(answered.saturating_sub(messages));
        let _ = self.answered.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code panics while holding the lock, and the data would be sound if it did.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
