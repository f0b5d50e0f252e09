//! What a verdict writes into a row, as data: a store's statements apply it, and decide nothing.

use std::time::Duration;

use posthaste_core::lifecycle::{EXHAUSTED, Settlement, Verdict};

use crate::table::{Counts, Strategy, Table, TableMap};

/// The states that a verdict writes, by their names in statements; the labels are the table's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StatusLabel {
    /// May be claimed at once.
    Pending,
    /// May be claimed when its delay is over.
    Waiting,
    /// The broker has it.
    Delivered,
    /// Given up.
    Dead,
}

impl StatusLabel {
    /// Its name in statements, and for [`TableMap::label`].
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Waiting => "waiting",
            Self::Delivered => "delivered",
            Self::Dead => "dead",
        }
    }
}

/// The change of one row's columns. A part that the table has no column for is left out by the statement.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowChange {
    /// The new status; none leaves it as it is.
    pub status: Option<StatusLabel>,
    /// Added to the count of attempts.
    pub attempts: i32,
    /// The next attempt comes so many whole milliseconds after the settling, on the database's clock; none leaves its time
    /// as it is.
    pub delay: Option<Duration>,
    /// The last error, as the column can keep it; none leaves it as it is.
    pub error: Option<String>,
    /// Whether the row has a time of delivery from now on. No other row has one.
    pub delivered: bool,
    /// Whether a copy goes to the table of dead letters.
    pub dead_letter: bool,
}

impl RowChange {
    /// What a verdict writes into a row of this table.
    pub fn of(verdict: &Verdict, map: &TableMap) -> Self {
        let leased = match map.strategy() {
            Strategy::Split | Strategy::Leased => true,
            Strategy::RowLocks | Strategy::Log => false,
        };
        // A count of retries holds those that were scheduled: the last attempt leads to none.
        let last = match map.counts() {
            Counts::Attempts => 1,
            Counts::Retries => 0,
        };
        let (status, counted, delay, error) = match verdict {
            Verdict::Delivered => (Some(StatusLabel::Delivered), last, None, None),
            Verdict::Dead { error } => (Some(StatusLabel::Dead), last, None, Some(error)),
            Verdict::Retry { delay, error } => (Some(StatusLabel::Waiting), 1, Some(*delay), Some(error)),
            Verdict::Postponed { delay, error } => (Some(StatusLabel::Waiting), 0, Some(*delay), Some(error)),
            // Where the claim wrote nothing, the row is what it was: it may have waited under a label of its own.
            Verdict::Released => (leased.then_some(StatusLabel::Pending), 0, None, None),
        };
        Self {
            status,
            // A lease counts the attempt when it is taken; a lock counts nothing.
            attempts: counted - i32::from(leased),
            delay: delay.map(in_millis),
            error: error.map(|error| map.error_text(error)),
            delivered: status == Some(StatusLabel::Delivered),
            dead_letter: status == Some(StatusLabel::Dead) && map.has(Table::DeadLetter),
        }
    }

    /// What a settlement writes into a row of this table: what its verdict does, less a letter that is kept elsewhere.
    pub fn settling(settlement: &Settlement, map: &TableMap) -> Self {
        let mut change = Self::of(&settlement.verdict, map);
        change.dead_letter &= !settlement.without_letter;
        change
    }

    /// What is written into a claimed row whose worker crashed on the last attempt: a death, but an earlier error stays.
    pub fn exhausted(map: &TableMap) -> Self {
        let error = EXHAUSTED.to_owned();
        Self::of(&Verdict::Dead { error }, map)
    }
}

impl TableMap {
    /// So many attempts of a row that died, as its column counts them.
    pub fn kept_attempts(&self, attempts: u32) -> i32 {
        let kept = match self.counts() {
            Counts::Attempts => attempts,
            Counts::Retries => attempts.saturating_sub(1),
        };
        i32::try_from(kept).unwrap_or(i32::MAX)
    }
}

/// As databases are told it, so that changes that are written alike are equal.
fn in_millis(delay: Duration) -> Duration {
    Duration::from_millis(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX))
}
