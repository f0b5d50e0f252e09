//! The messages of one call of the publisher, and how far each of them is, by place.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use crate::reported::InFlightMessage;

/// The publisher owes an answer.
const OWED: u8 = 0;
/// The answer is being taken note of.
const ANSWERING: u8 = 1;
/// Delivered, and to be settled.
const DELIVERED: u8 = 2;
/// On its way to the database, in this or in another form.
const TAKEN: u8 = 3;

/// The messages of one call of the publisher. What is delivered is settled from here, without a word about each message.
#[derive(Debug)]
pub(crate) struct Slab {
    messages: Vec<InFlightMessage>,
    states: Vec<AtomicU8>,
    /// The circuit's generation in which each message was let through, plus one; 0 if it did not ask.
    let_through: Vec<AtomicU64>,
    owed: AtomicU32,
    /// Whether the settler knows that there is something to be taken.
    announced: AtomicBool,
}

impl Slab {
    pub(crate) fn new(messages: Vec<InFlightMessage>) -> Self {
        Self {
            states: messages.iter().map(|_| AtomicU8::new(OWED)).collect(),
            let_through: messages.iter().map(|_| AtomicU64::new(0)).collect(),
            owed: AtomicU32::new(u32::try_from(messages.len()).unwrap_or(u32::MAX)),
            announced: AtomicBool::new(false),
            messages,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.messages.len()
    }

    pub(crate) fn messages(&self) -> &[InFlightMessage] {
        &self.messages
    }

    /// The message at a place, if there is one.
    pub(crate) fn get(&self, place: usize) -> Option<&InFlightMessage> {
        self.messages.get(place)
    }

    /// Whether the publisher still owes an answer for a place. Not for one that there is none of.
    pub(crate) fn is_owed(&self, place: usize) -> bool {
        let state = self.states.get(place);
        state.is_some_and(|state| state.load(Ordering::Acquire) == OWED)
    }

    /// How many answers the publisher owes.
    pub(crate) fn owed(&self) -> u32 {
        self.owed.load(Ordering::Acquire)
    }

    /// Takes note that a message was let through in this generation of the circuit.
    pub(crate) fn let_through(&self, place: usize, generation: u64) {
        self.let_through[place].store(generation + 1, Ordering::Relaxed);
    }

    /// In which generation of the circuit a message was let through, as far as it was noted here.
    pub(crate) fn generation(&self, place: usize) -> Option<u64> {
        self.let_through[place].load(Ordering::Relaxed).checked_sub(1)
    }

    /// Takes an answer that a message was delivered; false if there is none to be taken.
    pub(crate) fn begin_delivery(&self, place: usize) -> bool {
        self.change(place, OWED, ANSWERING)
    }

    /// From now on it may be settled.
    pub(crate) fn end_delivery(&self, place: usize) {
        self.change(place, ANSWERING, DELIVERED);
    }

    /// Takes another answer, or one that is settled in another way; false if there is none to be taken.
    pub(crate) fn take(&self, place: usize) -> bool {
        self.change(place, OWED, TAKEN)
    }

    fn change(&self, place: usize, from: u8, to: u8) -> bool {
        let state = self.states.get(place);
        state.is_some_and(|state| {
            let changed = state.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst);
            changed.is_ok()
        })
    }

    /// So many answers more are there; returns how many are not.
    pub(crate) fn answered(&self, answers: u32) -> u32 {
        self.owed.fetch_sub(answers, Ordering::AcqRel).saturating_sub(answers)
    }

    /// Whether the settler has to be told that there is something to be taken.
    pub(crate) fn announce(&self) -> bool {
        // Without a write in the usual case: the settler has not been here since the last delivery.
        !self.announced.load(Ordering::SeqCst) && !self.announced.swap(true, Ordering::SeqCst)
    }

    /// Takes the places of what is delivered and not yet settled, for the settler.
    pub(crate) fn take_delivered(&self) -> Vec<u32> {
        // First of all: what is delivered from now on is announced anew.
        self.announced.store(false, Ordering::SeqCst);
        let places = 0_u32..;
        let delivered = places.zip(&self.states).filter(|(_, state)| {
            state.load(Ordering::SeqCst) == DELIVERED && {
                state.store(TAKEN, Ordering::Relaxed);
                true
            }
        });
        delivered.map(|(place, _)| place).collect()
    }
}

#[cfg(test)]
mod tests {
    use chrono::Utc;
    use posthaste_core::lifecycle::LeaseToken;
    use posthaste_core::store::ClaimedMessage;
    use posthaste_core::{Message, RetryPolicy};

    use super::*;

    fn slab(messages: usize) -> Slab {
        let message = |_| {
            let claimed = ClaimedMessage {
                message: Message::new("orders", "x"),
                fault: None,
                sequence: None,
                created_at: Utc::now(),
                attempts: 1,
                hash: None,
                version: None,
                max_attempts: None,
            };
            InFlightMessage::new(&claimed, LeaseToken::new(), &RetryPolicy::default())
        };
        Slab::new((0..messages).map(message).collect())
    }

    #[test]
    fn the_first_answer_counts_and_no_other() {
        let slab = slab(3);
        assert!(slab.begin_delivery(0) && !slab.begin_delivery(0) && !slab.take(0));
        assert!(slab.take(1) && !slab.begin_delivery(1));
        assert!(!slab.take(3) && !slab.begin_delivery(3), "there is no such place");
        assert!(!slab.is_owed(0) && !slab.is_owed(1) && slab.is_owed(2) && !slab.is_owed(3));
        assert_eq!((slab.answered(2), slab.owed()), (1, 1));
    }

    #[test]
    fn what_is_delivered_is_announced_once_and_taken_once() {
        let slab = slab(4);
        for place in [3, 1] {
            slab.begin_delivery(place);
        }
        assert_eq!(slab.take_delivered(), [0; 0], "the guards do not know of them yet");
        slab.end_delivery(3);
        assert!(slab.announce() && !slab.announce());
        slab.end_delivery(1);
        assert_eq!(slab.take_delivered(), [1, 3]);
        assert_eq!(slab.take_delivered(), [0; 0]);
        slab.begin_delivery(0);
        slab.end_delivery(0);
        assert!(slab.announce(), "the settler was here");
        assert_eq!(slab.take_delivered(), [0]);
    }
}
