//! Failed rows that may have killed an earlier reader, and when they are risked again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::lanes::Lane;
use super::suspects::{HandedOut, Suspects};

/// While there is other work, suspects are risked no more often: a reader that one of them kills has got something done
/// before.
const TRIAL_INTERVAL: Duration = Duration::from_secs(1);

/// Failed rows that may have killed an earlier reader, by their numbers in the table of failures.
///
/// All rows of that table that are in flight are written down in [`HandedOut::retried`], before they go. A reader that ends
/// without a word leaves them behind as suspects. They go by the same rule as those of the log, in ever smaller groups and at
/// last one at a time, but never beside others: what is healthy goes first, and is not in flight when a suspect kills again.
///
/// # Examples
/// ```
/// use std::time::Instant;
///
/// use posthaste_sql::log::{HandedOut, SuspectedRetries};
///
/// let now = Instant::now();
/// let handed_out: HandedOut = "100;;17-17:3".parse()?;
/// let mut retries = SuspectedRetries::after_crash(&handed_out, now);
/// retries.keep_live([(17, None)]);
/// assert_eq!((retries.group([17], 50), retries.crashes_alone(17)), (1, 0));
/// // Before it goes again, it is counted.
/// assert_eq!(retries.counting([17]).to_string(), "17-17:4");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct SuspectedRetries {
    suspects: Suspects,
    lanes: BTreeMap<i64, Option<Lane>>,
    try_at: Instant,
}

impl SuspectedRetries {
    /// Nothing is suspected.
    pub fn none(now: Instant) -> Self {
        Self {
            suspects: Suspects::default(),
            lanes: BTreeMap::new(),
            try_at: now,
        }
    }

    /// What the successor of a reader that crashed suspects.
    pub fn after_crash(handed_out: &HandedOut, now: Instant) -> Self {
        Self {
            suspects: handed_out.retried.clone(),
            lanes: BTreeMap::new(),
            try_at: now + TRIAL_INTERVAL,
        }
    }

    /// The same of a reader that lives, and has forgotten all else: what was only in flight has killed nobody.
    pub fn of_survivor(handed_out: &HandedOut, now: Instant) -> Self {
        let mut kept = Self::after_crash(handed_out, now);
        let once: Vec<i64> = kept.rows().filter(|row| kept.suspects.crashes(*row) == 1).collect();
        for row in once {
            kept.forget(row);
        }
        kept
    }

    /// Keeps those that are still to be delivered, and knows their lanes from now on.
    pub fn keep_live(&mut self, live: impl IntoIterator<Item = (i64, Option<Lane>)>) {
        self.lanes = live.into_iter().collect();
        let gone: Vec<i64> = self.rows().filter(|row| !self.lanes.contains_key(row)).collect();
        for row in gone {
            self.forget(row);
        }
    }

    /// Whether nothing is suspected.
    pub fn is_empty(&self) -> bool {
        self.suspects.is_empty()
    }

    /// All of them.
    pub fn rows(&self) -> impl Iterator<Item = i64> {
        self.suspects.ids()
    }

    /// The lanes in which they stand. What is behind them there waits for them.
    pub fn lanes(&self) -> BTreeSet<&Lane> {
        self.lanes.values().flatten().collect()
    }

    /// Whether a row is suspected.
    pub fn contains(&self, row: i64) -> bool {
        self.suspects.crashes(row) > 0
    }

    /// The crashes in which a row was alone: that many attempts it has used.
    pub fn crashes_alone(&self, row: i64) -> u32 {
        self.suspects.crashes_alone(row)
    }

    /// Whether a row that has used so many attempts otherwise has none left.
    pub fn is_exhausted(&self, row: i64, attempts: u32, allowed: u32) -> bool {
        let crashes = self.crashes_alone(row);
        crashes > 0 && crashes.saturating_add(attempts) >= allowed
    }

    /// How many of these suspects, from the first on, go together, with nothing else in flight.
    pub fn group(&self, rows: impl IntoIterator<Item = i64>, batch: u32) -> usize {
        self.suspects.group(rows, batch, 0)
    }

    /// Whether it is the turn of suspects, though there may be other work.
    pub fn are_due(&self, now: Instant) -> bool {
        !self.is_empty() && self.try_at <= now
    }

    /// Some of them are tried now.
    pub fn tried(&mut self, now: Instant) {
        self.try_at = now + TRIAL_INTERVAL;
    }

    /// A row is suspected no more: there is an answer for it, or it was given up.
    pub fn forget(&mut self, row: i64) {
        self.suspects.forget(row);
        self.lanes.remove(&row);
    }

    /// What to write down before these rows go, with those that are in flight already.
    pub fn counting(&self, in_flight: impl IntoIterator<Item = i64>) -> Suspects {
        self.suspects.counting_all(in_flight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(text: &str, now: Instant) -> SuspectedRetries {
        let mut retries = SuspectedRetries::after_crash(&text.parse().unwrap(), now);
        retries.keep_live(retries.rows().map(|row| (row, None)).collect::<Vec<_>>());
        retries
    }

    /// Proves B8.
    #[test]
    fn attempts_that_failed_and_crashes_alone_are_counted_together() {
        let retries = after(";;1-1:3,2-2:4,3-3:8", Instant::now());
        let exhausted = |row, attempts| retries.is_exhausted(row, attempts, 5);
        assert_eq!(
            [exhausted(1, 0), exhausted(2, 0), exhausted(3, 0)],
            [false, false, true]
        );
        assert_eq!(
            [exhausted(1, 4), exhausted(2, 3), exhausted(2, 4)],
            [false, false, true]
        );
    }

    #[test]
    fn who_lives_suspects_nothing_that_was_only_in_flight() {
        let handed_out: HandedOut = "9;;1-2:1,3-3:2".parse().unwrap();
        let kept = SuspectedRetries::of_survivor(&handed_out, Instant::now());
        assert_eq!(kept.rows().collect::<Vec<_>>(), [3]);
    }

    #[test]
    fn what_is_no_longer_to_be_delivered_is_forgotten() {
        let mut retries = after(";;1-3:2", Instant::now());
        retries.keep_live([(2, Some(("orders".into(), "k".into())))]);
        assert_eq!(
            (retries.rows().collect::<Vec<_>>(), retries.lanes().len()),
            (vec![2], 1)
        );
        retries.forget(2);
        assert!(retries.is_empty() && retries.lanes().is_empty());
    }

    #[test]
    fn other_work_comes_first_for_a_while_after_a_crash_and_after_each_trial() {
        let now = Instant::now();
        let mut retries = after(";;1-3:2", now);
        assert!(!retries.are_due(now) && retries.are_due(now + TRIAL_INTERVAL));
        retries.tried(now + TRIAL_INTERVAL);
        assert!(!retries.are_due(now + TRIAL_INTERVAL) && retries.are_due(now + 2 * TRIAL_INTERVAL));
    }
}
