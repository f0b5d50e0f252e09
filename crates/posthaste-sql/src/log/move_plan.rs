//! What moving a queue to a log has to do.

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
