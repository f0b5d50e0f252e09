//! The messages that were due and that a drain did not deliver.

use std::collections::{HashMap, HashSet};

use posthaste_core::MessageId;

/// So many are known by id, so that one that is delivered after all is not counted.
const MAX_KNOWN: usize = 1_000_000;

/// So many are known with their reason. One is said at the end, and each may be delivered before that.
const MAX_REASONS: usize = 100;

/// Why a message is not delivered, as far as the database knows.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cause<'a> {
    /// It was given back.
    NotTried,
    /// It failed, or could not be claimed.
    Failed(&'a str),
    /// What became of it could not be written.
    Unwritten(&'a str),
    /// What became of it came too late to be written.
    Lost,
}

#[derive(Debug, Default)]
pub(crate) struct Undelivered {
    /// True for those whose verdicts came too late to be written.
    ids: HashMap<MessageId, bool>,
    /// In the order in which they came.
    reasons: Vec<Reason>,
    /// Those that were put off; they may be due again before the drain is through.
    postponed: HashSet<MessageId>,
    /// Those beyond [`MAX_KNOWN`].
    more: u64,
}

#[derive(Debug)]
struct Reason {
    id: MessageId,
    /// The drain ends with an error of its own for these.
    unwritten: bool,
    text: String,
}

impl Undelivered {
    /// Whether there is none that could be delivered after all.
    pub(crate) fn is_empty(&self) -> bool {
        self.ids.is_empty() && self.reasons.is_empty() && self.postponed.is_empty()
    }

    pub(crate) fn add(&mut self, id: MessageId, cause: Cause<'_>) {
        if self.ids.len() >= MAX_KNOWN && !self.ids.contains_key(&id) {
            self.more += 1;
            return;
        }
        self.ids.insert(id, matches!(cause, Cause::Lost));
        let (text, unwritten) = match cause {
            Cause::NotTried => return,
            Cause::Failed(text) => (text, false),
            Cause::Unwritten(text) => (text, true),
            Cause::Lost => ("its lease was lost before its outcome could be written", true),
        };
        let text = text.to_owned();
        let reason = Reason { id, unwritten, text };
        if let Some(known) = self.reasons.iter_mut().find(|known| known.id == id) {
            *known = reason;
        } else if self.reasons.len() < MAX_REASONS {
            self.reasons.push(reason);
        }
    }

    /// Takes note of a message that is delivered after all.
    pub(crate) fn delivered(&mut self, id: MessageId) {
        if self.ids.remove(&id).is_some() {
            self.reasons.retain(|known| known.id != id);
        }
    }

    pub(crate) fn postponed(&mut self, id: MessageId) {
        if self.postponed.len() < MAX_KNOWN {
            self.postponed.insert(id);
        }
    }

    /// Whether all of these were put off before.
    pub(crate) fn postponed_before(&self, mut ids: impl Iterator<Item = MessageId>) -> bool {
        ids.all(|id| self.postponed.contains(&id))
    }

    /// Whether there are messages whose verdicts came too late, and that were not delivered later on.
    pub(crate) fn lost_any(&self) -> bool {
        self.ids.values().any(|lost| *lost)
    }

    pub(crate) fn count(&self) -> u64 {
        self.ids.len() as u64 + self.more
    }

    /// The first of them with its reason, for people; of those whose outcome could not be written, if there are any.
    pub(crate) fn first_failure(&self) -> Option<String> {
        let unwritten = self.reasons.iter().find(|reason| reason.unwritten);
        let Reason { id, text, .. } = unwritten.or(self.reasons.first())?;
        Some(format!("message {id}: {text}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_reason_is_that_of_a_message_that_is_still_undelivered() {
        let mut undelivered = Undelivered::default();
        let [given_back, late, broken] = [(); 3].map(|()| MessageId::new());
        undelivered.add(given_back, Cause::NotTried);
        undelivered.add(late, Cause::Failed("not now"));
        undelivered.add(broken, Cause::Failed("too large"));
        undelivered.add(broken, Cause::NotTried);
        assert_eq!(undelivered.first_failure(), Some(format!("message {late}: not now")));
        undelivered.delivered(late);
        assert_eq!(
            undelivered.first_failure(),
            Some(format!("message {broken}: too large"))
        );
        undelivered.delivered(broken);
        assert_eq!((undelivered.first_failure(), undelivered.count()), (None, 1));
    }

    #[test]
    fn what_could_not_be_written_comes_first_until_it_is_written() {
        let mut undelivered = Undelivered::default();
        let [failed, refused] = [(); 2].map(|()| MessageId::new());
        undelivered.add(failed, Cause::Failed("not now"));
        undelivered.add(refused, Cause::Unwritten("a constraint"));
        assert_eq!(
            undelivered.first_failure(),
            Some(format!("message {refused}: a constraint"))
        );
        undelivered.add(refused, Cause::Failed("too large"));
        assert_eq!(undelivered.first_failure(), Some(format!("message {failed}: not now")));
        undelivered.add(failed, Cause::Lost);
        assert!(undelivered.first_failure().is_some_and(|first| first.contains("lease")));
    }
}
