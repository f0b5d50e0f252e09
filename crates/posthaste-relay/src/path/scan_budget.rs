//! How far a claim may scan past keys in flight.
//!
//! When most keys of a large backlog are in flight, an ordered claim has to walk past their rows to find others, at worst
//! past all of them. A short scan is cheap and mostly enough, but only a deep scan finds the rows behind a hot
//! key. So deep scans are saved up for: a twentieth of the time goes into them, each as deep as it takes, twice as deep
//! as the last one if that found too little.

use std::time::Duration;

use tokio::time::Instant;

/// Rows that a scan may see in any case: for each row that is asked for, and at least.
const SHALLOW_PER_ROW: u32 = 8;
const SHALLOWEST: u32 = 4_000;

/// Rows saved up per second, at about a microsecond for each one scanned.
const SAVED_PER_SECOND: u32 = 50_000;

#[derive(Debug)]
pub(crate) struct ScanBudget {
    shallow: u32,
    backlog: bool,
    saved: u32,
    since: Instant,
    target: u32,
}

impl ScanBudget {
    /// For claims of `limit` rows.
    pub(crate) fn new(limit: u32) -> Self {
        let shallow = limit.saturating_mul(SHALLOW_PER_ROW).max(SHALLOWEST);
        Self {
            shallow,
            backlog: false,
            saved: 0,
            since: Instant::now(),
            target: shallow.saturating_mul(2),
        }
    }

    /// Whether there was a full batch, and no sign since that it was the last one.
    pub(crate) fn backlog(&self) -> bool {
        self.backlog
    }

    /// Nothing is left: the next scan is of a table that has little to scan.
    pub(crate) fn backlog_is_over(&mut self) {
        self.backlog = false;
        self.saved = 0;
        self.target = self.shallow.saturating_mul(2);
    }

    /// How many rows the next claim may scan; `None` for as many as it takes. Only beside rows in flight is there
    /// something to scan past.
    pub(crate) fn scan_limit(&mut self, beside: bool) -> Option<u32> {
        if !self.backlog {
            return None;
        }
        let earned = saved_in(self.since.elapsed());
        if earned > 0 {
            self.saved = self.saved.saturating_add(earned).min(self.target);
            self.since = Instant::now();
        }
        Some(if beside && self.saved >= self.target {
            self.target
        } else {
            self.shallow
        })
    }

    /// Takes note of a scan and whether it brought a full batch.
    pub(crate) fn scanned(&mut self, scan_limit: Option<u32>, full: bool) {
        self.backlog |= full;
        if scan_limit == Some(self.target) {
            self.saved = 0;
            if !full {
                self.target = self.target.saturating_mul(2);
            }
        }
    }
}

fn saved_in(time: Duration) -> u32 {
    u32::try_from(time.as_millis() * u128::from(SAVED_PER_SECOND) / 1_000).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn without_a_backlog_every_scan_sees_everything() {
        let mut scan_budget = ScanBudget::new(500);
        assert_eq!(scan_budget.scan_limit(true), None);
        scan_budget.scanned(None, false);
        assert_eq!(scan_budget.scan_limit(true), None);
        scan_budget.scanned(None, true);
        assert_eq!(scan_budget.scan_limit(true), Some(4_000));
        scan_budget.backlog_is_over();
        assert_eq!(scan_budget.scan_limit(true), None);
    }

    /// Proves pitfall 18.
    #[tokio::test(start_paused = true)]
    async fn deep_scans_get_through_any_backlog_in_a_twentieth_of_the_time() {
        let mut scan_budget = ScanBudget::new(500);
        scan_budget.scanned(None, true);
        let (mut deepest, mut seen, started) = (0, 0, Instant::now());
        while deepest < 500_000 {
            tokio::time::advance(Duration::from_millis(10)).await;
            let scan = scan_budget.scan_limit(true).expect("there is a backlog");
            if scan > 4_000 {
                seen += scan;
            }
            deepest = deepest.max(scan);
            // A hot key: sometimes it is in flight, sometimes it fills a batch.
            scan_budget.scanned(Some(scan), scan == 4_000 && rand::random());
        }
        let share = Duration::from_micros(u64::from(seen)).as_secs_f64() / started.elapsed().as_secs_f64();
        assert!(share < 0.06, "deep scans took {share} of the time");
        assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
    }
}
