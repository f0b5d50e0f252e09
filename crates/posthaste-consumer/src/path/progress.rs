//! How far a lane is committed: after the batch, never past what is settled.

use std::time::{Duration, Instant};

/// The wait after a failed commit.
const COMMIT_RETRY_DELAY: Duration = Duration::from_secs(1);

/// How far a lane's position is committed.
#[derive(Debug, Default)]
pub(super) struct Progress {
    committed: Option<i64>,
    in_flight: Option<i64>,
    due: bool,
    not_before: Option<Instant>,
}

impl Progress {
    /// The position to commit now, if there is one.
    pub(super) fn take(&mut self, batch_over: bool, next: Option<i64>) -> Option<i64> {
        self.due |= batch_over;
        let waits = self.not_before.is_some_and(|time| Instant::now() < time);
        if !self.due || self.in_flight.is_some() || waits {
            return None;
        }
        self.due = false;
        self.in_flight = next.filter(|next| Some(*next) > self.committed);
        self.in_flight
    }

    /// Takes note of an answer. One to an earlier assignment's commit comes when none is awaited.
    pub(super) fn answered(&mut self, offset: i64, well: bool) {
        if self.in_flight != Some(offset) {
            return;
        }
        self.in_flight = None;
        if well {
            self.committed = Some(offset);
        } else {
            self.due = true;
            self.not_before = Some(Instant::now() + COMMIT_RETRY_DELAY);
        }
    }

    /// The position to commit as the last one, if it is not committed yet.
    pub(super) fn last(&self, next: Option<i64>) -> Option<i64> {
        next.filter(|next| Some(*next) > self.committed)
    }
}
