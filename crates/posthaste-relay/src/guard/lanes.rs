//! Lanes that stand still across batches.
//!
//! A publisher that keeps the order of a lane by itself is given later messages of it while earlier ones are under way, also by
//! another call. If one of them is not delivered, nothing that was claimed behind it may go: the message goes again, and what
//! follows it has to follow. So its lane is stopped until that is written, and for good for all that was claimed before. What is
//! claimed afterwards comes in order from the store again, which hands nothing out while something behind it is in flight.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use posthaste_core::{MessageId, Text};

use crate::guard::changes;
use crate::reported::InFlightMessage;

/// The lanes of which a message failed while others were claimed behind it.
#[derive(Debug, Default)]
pub(crate) struct StoppedLanes {
    /// Whether messages of one lane may be in flight in several batches at all.
    pipelined: bool,
    any: AtomicBool,
    /// The number of the latest claim.
    latest: AtomicU64,
    /// The number of the claim that is under way, or 0.
    asking: AtomicU64,
    state: Mutex<HashMap<(Text, Text), Stop>>,
}

#[derive(Debug, Default)]
struct Stop {
    /// What was not delivered and is not settled.
    unsettled: HashSet<MessageId>,
    /// What was claimed until then may not go.
    until: u64,
}

impl StoppedLanes {
    pub(crate) fn new(pipelined: bool) -> Self {
        Self {
            pipelined,
            ..Self::default()
        }
    }

    /// Whether messages of one lane may be in flight in several batches.
    pub(crate) fn is_pipelined(&self) -> bool {
        self.pipelined
    }

    /// A claim is about to be made; returns its number.
    pub(crate) fn claim_begins(&self) -> u64 {
        let number = self.latest.fetch_add(1, Ordering::SeqCst) + 1;
        self.asking.store(number, Ordering::SeqCst);
        number
    }

    /// What the claim brought is in flight, or it brought nothing.
    pub(crate) fn claim_ends(&self) {
        self.asking.store(0, Ordering::SeqCst);
    }

    /// Whether any lane is stopped.
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::SeqCst)
    }

    /// A message was not delivered: nothing behind it may go.
    pub(crate) fn stop(&self, message: &InFlightMessage) {
        let Some(lane) = message.lane().filter(|_| self.pipelined) else {
            return;
        };
        self.state().entry(lane).or_default().unsettled.insert(message.id);
        self.any.store(true, Ordering::SeqCst);
        changes::note();
    }

    /// Whether a message of this claim may not go, because an earlier one of its lane was not delivered.
    pub(crate) fn holds_back(&self, message: &InFlightMessage) -> bool {
        if !self.any() {
            return false;
        }
        let Some(lane) = message.lane() else { return false };
        let state = self.state();
        let stop = state.get(&lane);
        stop.is_some_and(|stop| !stop.unsettled.is_empty() || message.claim <= stop.until)
    }

    /// What became of a message is written, or nothing is known of it any more.
    pub(crate) fn settled(&self, message: &InFlightMessage) {
        if !self.any() {
            return;
        }
        let Some(lane) = message.lane() else { return };
        let latest = self.latest.load(Ordering::SeqCst);
        if let Some(stop) = self.state().get_mut(&lane)
            && stop.unsettled.remove(&message.id)
        {
            stop.until = latest;
        }
    }

    /// Forgets lanes of which nothing can be in flight that may not go: `oldest` is the first claim of which something is.
    pub(crate) fn forget_before(&self, oldest: Option<u64>) {
        let asking = Some(self.asking.load(Ordering::SeqCst)).filter(|asking| *asking > 0);
        let oldest = oldest.into_iter().chain(asking).min().unwrap_or(u64::MAX);
        let mut state = self.state();
        state.retain(|_, stop| !stop.unsettled.is_empty() || oldest <= stop.until);
        if state.is_empty() {
            self.any.store(false, Ordering::SeqCst);
        }
    }

    fn state(&self) -> MutexGuard<'_, HashMap<(Text, Text), Stop>> {
        // No code panics while holding the lock, and the data would be sound if it did.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use chrono::Utc;
    use posthaste_core::lifecycle::LeaseToken;
    use posthaste_core::store::ClaimedMessage;
    use posthaste_core::{Message, RetryPolicy};

    use super::*;

    fn claimed(lanes: &StoppedLanes, keys: &[&str]) -> Vec<InFlightMessage> {
        let claim = lanes.claim_begins();
        let in_flight = |key: &&str| {
            let claimed = ClaimedMessage {
                message: Message::new("orders", "x").key(*key),
                fault: None,
                sequence: None,
                created_at: Utc::now(),
                attempts: 1,
                hash: None,
                version: None,
                max_attempts: None,
            };
            InFlightMessage {
                claim,
                ..InFlightMessage::new(&claimed, LeaseToken::new(), &RetryPolicy::default())
            }
        };
        let messages = keys.iter().map(in_flight).collect();
        lanes.claim_ends();
        messages
    }

    #[test]
    fn what_was_claimed_before_a_failure_was_written_may_not_go_and_other_lanes_do() {
        let lanes = StoppedLanes::new(true);
        let [first, second] = [(); 2].map(|()| claimed(&lanes, &["a", "b"]));
        assert!(!lanes.holds_back(&second[0]));
        lanes.stop(&first[0]);
        let third = claimed(&lanes, &["a", "b"]);
        for batch in [&first, &second, &third] {
            assert!(lanes.holds_back(&batch[0]) && !lanes.holds_back(&batch[1]));
        }
        lanes.settled(&first[0]);
        assert!(lanes.holds_back(&third[0]), "it was claimed before that was written");
        let fourth = claimed(&lanes, &["a"]);
        assert!(!lanes.holds_back(&fourth[0]), "the store knows what it hands out");
        lanes.forget_before(Some(3));
        assert!(lanes.holds_back(&third[0]), "it is still in flight");
        lanes.forget_before(Some(4));
        assert!(!lanes.any());
    }

    /// Its rows were handed out before the failure was written, though they come afterwards.
    #[test]
    fn a_claim_that_is_under_way_counts_as_made() {
        let lanes = StoppedLanes::new(true);
        let first = claimed(&lanes, &["a"]);
        lanes.stop(&first[0]);
        let second = claimed(&lanes, &["a"]);
        lanes.claim_begins();
        lanes.settled(&first[0]);
        lanes.forget_before(None);
        assert!(lanes.holds_back(&second[0]) && lanes.any());
        lanes.claim_ends();
        lanes.forget_before(None);
        assert!(!lanes.any());
    }

    #[test]
    fn a_lane_stands_still_until_all_that_was_not_delivered_is_written() {
        let lanes = StoppedLanes::new(true);
        let [first, second] = [(); 2].map(|()| claimed(&lanes, &["a"]));
        lanes.stop(&first[0]);
        lanes.stop(&second[0]);
        lanes.settled(&second[0]);
        lanes.forget_before(None);
        assert!(lanes.holds_back(&claimed(&lanes, &["a"])[0]));
        lanes.settled(&first[0]);
        assert!(!lanes.holds_back(&claimed(&lanes, &["a"])[0]));
    }

    #[test]
    fn where_a_lane_is_in_one_batch_only_nothing_is_remembered() {
        let lanes = StoppedLanes::default();
        lanes.stop(&claimed(&lanes, &["a"])[0]);
        assert!(!lanes.any());
    }
}
