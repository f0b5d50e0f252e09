//! Which messages go wrong, and how.

use std::fmt;

use posthaste_core::{Message, MessageId, PublishError};

/// How a message goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// It is not delivered, and this error is reported.
    Error(PublishError),
    /// It is delivered, but a transient error is reported.
    LostAcknowledgement,
    /// It is not delivered, and nothing is ever reported.
    Silence,
    /// The publisher panics, after what else is in the batch.
    Panic,
}

impl Fault {
    /// A broker that cannot be reached. Enough of these open the relay's circuit.
    pub fn transport() -> Self {
        Self::Error(PublishError::transport("the broker cannot be reached, as scripted"))
    }

    /// A failure that may pass.
    pub fn transient() -> Self {
        Self::Error(PublishError::transient("the broker is unavailable, as scripted"))
    }

    /// A failure that will not pass.
    pub fn permanent() -> Self {
        Self::Error(PublishError::permanent("the broker refuses the message, as scripted"))
    }
}

/// A fault and the messages it meets: all, unless narrowed.
pub struct Rule {
    fault: Fault,
    left: Option<u32>,
    meets: Box<dyn Fn(&Message) -> bool + Send + Sync>,
}

impl Rule {
    /// The fault meets every message.
    pub fn new(fault: Fault) -> Self {
        Self {
            fault,
            left: None,
            meets: Box::new(|_| true),
        }
    }

    /// Only the first `count` messages that it would meet.
    #[must_use]
    pub fn times(mut self, count: u32) -> Self {
        self.left = Some(count);
        self
    }

    /// Only messages for which `meets` holds.
    #[must_use]
    pub fn when(mut self, meets: impl Fn(&Message) -> bool + Send + Sync + 'static) -> Self {
        self.meets = Box::new(meets);
        self
    }

    /// Only these messages.
    #[must_use]
    pub fn on(self, ids: impl IntoIterator<Item = MessageId>) -> Self {
        let ids: Vec<_> = ids.into_iter().collect();
        self.when(move |message| ids.contains(&message.id))
    }

    /// The fault, if it meets the message.
    pub(super) fn apply(&mut self, message: &Message) -> Option<Fault> {
        if self.left == Some(0) || !(self.meets)(message) {
            return None;
        }
        self.left = self.left.map(|left| left - 1);
        Some(self.fault.clone())
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rule")
            .field("fault", &self.fault)
            .field("left", &self.left)
            .finish_non_exhaustive()
    }
}
