//! What a relay has to say at its end.

/// What a relay did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RelayReport {
    /// Messages delivered.
    pub delivered: u64,
    /// Failed attempts that will be tried again.
    pub retried: u64,
    /// Attempts that failed because the broker is unavailable, and do not count.
    pub postponed: u64,
    /// Messages given back untouched.
    pub released: u64,
    /// Messages that became dead.
    pub died: u64,
    /// Outcomes that came too late to be written.
    pub lease_lost: u64,
    /// Messages taken back from workers that crashed, where a claim cannot do that.
    pub recovered: u64,
    /// Messages for which the publisher had no answer when the relay had to stop; they are delivered again once their
    /// lease is over.
    pub abandoned: u64,
    /// Outcomes for which the database had no answer when the relay had to stop. Unless it has taken them all the same,
    /// their messages are delivered again once their lease is over.
    pub unsettled: u64,
    /// Outcomes that the database refused to write, and had not taken when the relay stopped.
    pub refused: u64,
    /// Outcomes that could not be written because another transaction had locked the rows, or the whole table, until
    /// the relay stopped; they are delivered again once their lease is over.
    pub busy: u64,
    /// Counted by [`Relay::drain`](crate::Relay::drain) alone: messages that were due and that it did not deliver,
    /// whatever the reason. They failed, died, were given back, or their outcome could not be written.
    pub undelivered: u64,
    /// Told by [`Relay::drain`](crate::Relay::drain) alone: the first of [`RelayReport::undelivered`] that was tried,
    /// and what went wrong.
    pub first_failure: Option<String>,
    /// Counted by [`Relay::drain`](crate::Relay::drain) alone, and unless it is limited to topics or a tenant: messages
    /// that were due when it ended and that no claim got. They stand behind one of their key that waits for its retry
    /// or is dead, another relay has them, or another transaction has locked their rows. Those of
    /// [`RelayReport::undelivered`] that are due again are among them.
    pub remaining: u64,
}

impl RelayReport {
    /// Whether a drain delivered everything that was due.
    pub fn is_complete(&self) -> bool {
        self.undelivered == 0 && self.remaining == 0
    }

    /// Says in the log what was done, field by field.
    pub(crate) fn tell(&self) {
        let Self {
            delivered,
            retried,
            postponed,
            released,
            died,
            lease_lost,
            recovered,
            abandoned,
            unsettled,
            refused,
            busy,
            undelivered,
            ref first_failure,
            remaining,
        } = *self;
        tracing::info!(
            delivered,
            retried,
            postponed,
            released,
            died,
            lease_lost,
            recovered,
            abandoned,
            unsettled,
            refused,
            busy,
            undelivered,
            first_failure,
            remaining,
            "relay stopped"
        );
    }
}
