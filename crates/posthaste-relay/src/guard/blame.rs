//! Who is to blame if a message fails as though the other side were unavailable: that side, or the message.
//!
//! A receiver may hang up on one body, a firewall refuse another, a proxy answer 502 because the service behind it crashes.
//! All of that looks like an outage, for which a message is not to pay with attempts. But if the same message fails so
//! again and others got through in between, it is the message: it uses an attempt, and says nothing about the other side.
//!
//! Until something gets through, trials go to messages that have not been tried: else a few such messages at the head of
//! the table would be the trials for ever.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use posthaste_core::MessageId;
use posthaste_core::publisher::{ErrorKind, ErrorScope, Outcome, Shared};

/// More messages than this are not remembered.
const MAX_MESSAGES: usize = 10_000;

/// More than this are not left out of a claim.
const MAX_LEFT_OUT: usize = 1_000;

#[derive(Debug, Default)]
pub(crate) struct Blame {
    /// Whether any message is known at all; mostly none is.
    any: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    failed: HashMap<MessageId, Failed>,
    /// How often anything got through since messages are known.
    deliveries: u64,
    /// The same of each stream.
    deliveries_of: HashMap<u64, u64>,
    /// Since when messages count as tried.
    round: u64,
}

#[derive(Debug)]
struct Failed {
    /// What had got through by then, anywhere or of its stream.
    deliveries: u64,
    /// In which round it was tried last.
    round: u64,
}

impl Blame {
    /// The outcome, as the failure of the message alone if that is what it is.
    pub(crate) fn judge(&self, id: MessageId, stream: u64, mut outcome: Outcome) -> Outcome {
        match &mut outcome {
            Outcome::Delivered(_) if self.any.load(Ordering::Relaxed) => self.state().delivered(id, stream),
            Outcome::Failed(error) if error.kind == ErrorKind::Transport && error.shared == Shared::No => {
                let within = match error.scope {
                    ErrorScope::Broker => None,
                    ErrorScope::Destination(_) => Some(stream),
                    _ => return outcome,
                };
                self.any.store(true, Ordering::Relaxed);
                if self.state().failed(id, within) {
                    error.kind = ErrorKind::Transient;
                    error.scope = ErrorScope::Message;
                    error
                        .message
                        .push_str(" (others have got through since this one failed before)");
                }
            }
            _ => {}
        }
        outcome
    }

    /// Whether any message failed so: else deliveries say nothing.
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Whether a message was tried in vain, and nothing got through since.
    pub(crate) fn was_tried(&self, id: MessageId) -> bool {
        if !self.any.load(Ordering::Relaxed) {
            return false;
        }
        let state = self.state();
        state.failed.get(&id).is_some_and(|failed| failed.round == state.round)
    }

    /// What trials had better not be made with.
    pub(crate) fn tried(&self) -> Vec<MessageId> {
        if !self.any.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let state = self.state();
        let tried = state.failed.iter().filter(|(_, failed)| failed.round == state.round);
        tried.map(|(id, _)| *id).take(MAX_LEFT_OUT).collect()
    }

    /// There are no others to make trials with.
    pub(crate) fn all_were_tried(&self) {
        self.state().round += 1;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code panics while holding the lock, and the data would be sound if it did.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn delivered(&mut self, id: MessageId, stream: u64) {
        self.failed.remove(&id);
        self.deliveries += 1;
        *self.deliveries_of.entry(stream).or_default() += 1;
        self.round += 1;
    }

    /// Whether others got through since the message failed before.
    fn failed(&mut self, id: MessageId, stream: Option<u64>) -> bool {
        if self.failed.len() >= MAX_MESSAGES || self.deliveries_of.len() >= MAX_MESSAGES {
            *self = Self {
                round: self.round,
                ..Self::default()
            };
        }
        let (round, deliveries) = (
            self.round,
            match stream {
                None => self.deliveries,
                Some(stream) => self.deliveries_of.get(&stream).copied().unwrap_or_default(),
            },
        );
        let failed = self.failed.entry(id).or_insert(Failed { deliveries, round });
        failed.round = round;
        failed.deliveries < deliveries
    }
}

#[cfg(test)]
mod tests {
    use posthaste_core::PublishError;

    use super::*;

    const STREAM: u64 = 1;

    fn unavailable() -> Outcome {
        Outcome::Failed(PublishError::transport("hung up"))
    }

    fn kind(outcome: &Outcome) -> (ErrorKind, ErrorScope) {
        match outcome {
            Outcome::Failed(error) => (error.kind, error.scope.clone()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_message_is_to_blame_once_others_got_through_since_it_failed() {
        let blame = Blame::default();
        let [bad, good] = [MessageId::new(), MessageId::new()];
        for _ in 0..3 {
            let failed = blame.judge(bad, STREAM, unavailable());
            assert_eq!(kind(&failed), (ErrorKind::Transport, ErrorScope::Broker));
        }
        blame.judge(good, STREAM, Outcome::DELIVERED);
        for _ in 0..2 {
            let failed = blame.judge(bad, STREAM, unavailable());
            assert_eq!(kind(&failed), (ErrorKind::Transient, ErrorScope::Message));
        }
        let another = blame.judge(MessageId::new(), STREAM, unavailable());
        assert_eq!(kind(&another).0, ErrorKind::Transport, "it has not failed before");
        blame.judge(bad, STREAM, Outcome::DELIVERED);
        let failed = blame.judge(bad, STREAM, unavailable());
        assert_eq!(kind(&failed).0, ErrorKind::Transport, "it got through itself");
    }

    #[test]
    fn what_got_through_elsewhere_says_nothing_about_a_destination() {
        let blame = Blame::default();
        let id = MessageId::new();
        let at = || Outcome::Failed(PublishError::transport("refused").at("hooks"));
        blame.judge(id, STREAM, at());
        blame.judge(MessageId::new(), STREAM + 1, Outcome::DELIVERED);
        assert_eq!(kind(&blame.judge(id, STREAM, at())).0, ErrorKind::Transport);
        blame.judge(MessageId::new(), STREAM, Outcome::DELIVERED);
        assert_eq!(kind(&blame.judge(id, STREAM, at())).0, ErrorKind::Transient);
    }

    #[test]
    fn trials_are_made_with_others_until_all_were_tried() {
        let blame = Blame::default();
        let id = MessageId::new();
        assert_eq!(blame.tried(), []);
        blame.judge(id, STREAM, unavailable());
        assert_eq!(blame.tried(), [id]);
        assert!(blame.was_tried(id));
        blame.all_were_tried();
        assert_eq!(blame.tried(), []);
        blame.judge(id, STREAM, unavailable());
        assert!(blame.was_tried(id));
    }

    #[test]
    fn not_without_end_is_remembered() {
        let blame = Blame::default();
        for _ in 0..=MAX_MESSAGES {
            blame.judge(MessageId::new(), STREAM, unavailable());
        }
        assert!(blame.state().failed.len() < MAX_MESSAGES);
        assert!(blame.tried().len() <= MAX_LEFT_OUT);
    }
}
