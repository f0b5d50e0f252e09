//! What is known of one message whose verdict could not be written.

use std::time::Duration;

use posthaste_core::lifecycle::Verdict;
use posthaste_core::publisher::Outcome;
use tokio::time::Instant;

use crate::reported::InFlightMessage;

const FIRST_WAIT: Duration = Duration::from_secs(1);
const MAX_RETRY_DELAY: Duration = Duration::from_mins(1);

/// The waits for a row that another transaction has locked.
pub(crate) const FIRST_BUSY_WAIT: Duration = Duration::from_millis(100);
const MAX_BUSY_DELAY: Duration = Duration::from_secs(2);

/// A lock that is held for longer than this is worth a word.
pub(super) const BUSY_TOLD_AFTER: Duration = Duration::from_secs(1);

/// What is known of a row that is free is believed for so long after it was last seen, or its claim lost: later on it may
/// have been settled by another relay, replayed, or changed by hand.
pub(super) const FREE_FOR: Duration = Duration::from_mins(10);

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) message: InFlightMessage,
    pub(super) outcome: Outcome,
    pub(super) verdict: Verdict,
    pub(super) hold: Hold,
    pub(super) failures: u32,
    /// Since when it is held so.
    pub(super) since: Instant,
    pub(super) due: Instant,
    /// When its row was last ours.
    pub(super) seen: Instant,
    /// Whether the log speaks of it.
    pub(super) told: bool,
    /// Whether its letter is in the file.
    pub(super) spooled: bool,
    /// Whether it is to be tried with others: its letter has come to the file since the last try, which may be all that the
    /// database objected to.
    pub(super) fresh: bool,
}

impl Entry {
    pub(super) fn is_outdated(&self) -> bool {
        !self.hold.is_leased() && self.seen.elapsed() >= FREE_FOR
    }

    /// Whether it holds of a row that was claimed anew. An operator who changed or replayed the row wants it to be
    /// published: a death is not believed of the next claim, though it is not tried all the time, nor anything of a row
    /// that counts its attempts anew.
    pub(super) fn holds_of(&self, version: Option<i64>, attempts: u32, append_only: bool) -> bool {
        let is_another_life = attempts < self.message.attempts;
        let was_changed = self.hold == Hold::Lost && self.message.version != version;
        let may_try = !append_only && !self.spooled && self.is_due() && matches!(self.verdict, Verdict::Dead { .. });
        !is_another_life && !was_changed && !may_try
    }

    /// Whether it is kept elsewhere, so that it is enough to try one of many now and then.
    pub(super) fn is_kept(&self) -> bool {
        self.spooled && !self.fresh && self.hold == Hold::Leased && matches!(self.verdict, Verdict::Dead { .. })
    }

    /// Whether it is time to try to write it again. Under a lease the row is not claimed again and again.
    pub(super) fn is_due(&self) -> bool {
        self.hold.is_leased() || self.due <= Instant::now()
    }
}

/// Where the row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// Under the lease of its claim, which is renewed.
    Leased,
    /// The same, and nothing was refused: another transaction has locked it.
    Busy,
    /// Free, as it was before its claim.
    Free,
    /// Free, and nothing was refused: the claim was lost together with its verdicts.
    Lost,
}

impl Hold {
    pub(super) fn is_leased(self) -> bool {
        matches!(self, Self::Leased | Self::Busy)
    }

    pub(super) fn is_refused(self) -> bool {
        matches!(self, Self::Leased | Self::Free)
    }
}

/// A verdict from memory.
#[derive(Debug)]
pub(crate) struct Recalled {
    pub(crate) outcome: Outcome,
    pub(crate) verdict: Verdict,
    /// Whether it is still what became of the message. Else it is to be published.
    pub(crate) holds: bool,
    /// Whether it is time to try to write it again.
    pub(crate) due: bool,
    /// Whether its letter is in the file.
    pub(crate) spooled: bool,
    /// The earlier claim, if its lease was being renewed. It is over now.
    pub(crate) leased: Option<InFlightMessage>,
}

/// How long until something that was refused so often is tried again.
pub(crate) fn wait(failures: u32) -> Duration {
    FIRST_WAIT.saturating_mul(1 << failures.min(16)).min(MAX_RETRY_DELAY)
}

pub(super) fn busy_wait(failures: u32) -> Duration {
    FIRST_BUSY_WAIT
        .saturating_mul(1 << failures.min(16))
        .min(MAX_BUSY_DELAY)
}
