//! What moving a queue to a log has to do.

use std::fmt;

use posthaste_core::StoreError;

/// What of the queue is still to be moved, and what stands in the way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MovePlan {
    /// Messages that are due and were never tried: they become rows of the log.
    pub pending: u64,
    /// Messages that wait for their time or another try: they wait beside the log.
    pub waiting: u64,
    /// Dead messages.
    pub dead: u64,
    /// Messages that a relay has claimed.
    pub processing: u64,
    /// Those of them whose lease has not run out.
    pub leased: u64,
    /// Relays that serve the outbox. Those of the log are among them.
    pub relays: u64,
    /// Whether relays of the queue are kept from claiming.
    pub is_fenced: bool,
    /// Whether what is written to the queue goes to the log: then the move is through.
    pub is_redirected: bool,
}

impl MovePlan {
    /// All messages that are to be moved.
    pub fn messages(&self) -> u64 {
        self.pending + self.waiting + self.dead + self.processing
    }
}

/// Messages of a queue that its log does not take. Nothing is moved while there are some.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unfit {
    /// How many there are.
    pub count: u64,
    /// The first of them, each with what is wrong with it.
    pub examples: Vec<String>,
}

impl Unfit {
    /// How many are named. Who has thousands of them knows by then what is wrong.
    pub const MAX_EXAMPLES: u32 = 5;

    /// Refuses to begin, or to go on.
    ///
    /// # Errors
    /// If there are some, with what is to be done about them.
    pub fn refuse(&self, remedy: &'static str) -> Result<(), StoreError> {
        if self.count == 0 {
            return Ok(());
        }
        Err(StoreError::unsupported(self.to_string(), Some(remedy)))
    }
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.count {
            1 => write!(f, "1 message of the queue does not fit into the log: ")?,
            count => write!(f, "{count} messages of the queue do not fit into the log: ")?,
        }
        write!(f, "{}", self.examples.join("; "))?;
        match self.count.saturating_sub(self.examples.len() as u64) {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_of_what_does_not_fit_is_named_and_the_rest_counted() {
        let unfit = |count| Unfit {
            count,
            examples: vec!["a is long".to_owned()],
        };
        let said = |count| unfit(count).refuse("shorten it").unwrap_err().to_string();
        assert_eq!(
            said(1),
            "1 message of the queue does not fit into the log: a is long; shorten it"
        );
        assert_eq!(
            said(3),
            "3 messages of the queue do not fit into the log: a is long; and 2 more; shorten it"
        );
        assert!(Unfit::default().refuse("shorten it").is_ok());
    }
}
