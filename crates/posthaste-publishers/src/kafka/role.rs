//! What producers are for.

/// What a producer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// For messages that no other one of their lane follows before they are answered. Works as configured, except that it
    /// gives up a message after `answer_within`: by itself and alone, so that one which no broker takes does not cost the
    /// others their producer.
    Lone,
    /// For lanes with several messages in a batch. Never leaves one out: it tries forever, and what a broker refuses
    /// ends it as a whole. How long is waited is for the publisher to say.
    Lanes,
}

impl Role {
    /// In the words of the log.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Lone => "single messages",
            Self::Lanes => "lanes",
        }
    }
}
