//! Deaths that the database does not take.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use posthaste_core::MessageId;
use posthaste_core::lifecycle::Verdict;
use posthaste_core::store::{ClaimedMessage, DeadLetter};

use super::spool::Letter;
use crate::reported::Reported;

/// A death on its way to the net.
#[derive(Clone, Debug)]
pub(crate) struct Caught {
    pub(crate) whole: Arc<ClaimedMessage>,
    /// What the message died of.
    pub(crate) error: String,
    /// Why the database does not take that.
    pub(crate) cause: String,
    pub(crate) died_at: DateTime<Utc>,
}

impl Caught {
    pub(crate) fn of(reported: &Reported, cause: String) -> Option<Self> {
        let Verdict::Dead { error } = &reported.verdict else {
            return None;
        };
        Some(Self {
            whole: Arc::clone(reported.message.whole.as_ref()?),
            error: error.clone(),
            cause,
            died_at: Utc::now(),
        })
    }

    /// Its letter under this id, which is that of its row or of its event.
    pub(crate) fn letter(&self, namespace: &str, id: MessageId) -> Letter {
        let mut message = self.whole.message.clone();
        if message.id != id {
            (message.id, message.event_id) = (id, None);
        }
        let letter = DeadLetter {
            message,
            hash: self.whole.hash.as_ref().and_then(|hash| hash.expected),
            attempts: self.whole.attempts,
            error: self.error.clone(),
            created_at: self.whole.created_at,
            died_at: self.died_at,
        };
        Letter::new(namespace, &letter)
    }
}
