//! How far a claim scans for rows that it may take.

use posthaste_core::store::{ClaimRequest, KeyOrdering};

use crate::statement::Value;

/// Pending rows in the first window.
const FIRST: u32 = 500;

/// A scan may go further than usual if it may see more rows than these, in all and for each row that is wanted.
const USUAL: u32 = 4_000;
const USUAL_PER_ROW: u32 = 8;

/// Such a scan is rare, and meant to find what lies behind a large backlog. It reads so many rows for each one that it may
/// see: most are of lanes that are passed over, which costs a fraction of what it costs to see a row.
const READ_PER_ROW: i64 = 16;

/// Most lanes that are passed over. Each row that is read is compared with them.
const MAX_LANES: usize = 256;

/// The window of one scan. A lane of which nothing can be taken, because it is in flight or its head waits, is passed
/// over by the next one: so a key with a large backlog does not hide what lies behind.
#[derive(Debug)]
pub(crate) struct ScanWindow {
    /// So many pending rows are read, in order.
    pub(crate) read: i64,
    /// So many of these, at most, are seen.
    pub(crate) see: i64,
    /// Topic and key of lanes that are passed over.
    pub(crate) passed_over: Vec<(String, String)>,
    /// No window is larger.
    most: Option<i64>,
}

impl ScanWindow {
    /// The first window for so many rows.
    pub(crate) fn first(request: &ClaimRequest, wanted: u32) -> Self {
        let see = i64::from(wanted.max(FIRST));
        let ordered = request.ordering != KeyOrdering::None;
        let most = |rows: u32| {
            let usual = wanted.saturating_mul(USUAL_PER_ROW).max(USUAL);
            i64::from(rows) * if rows > usual { READ_PER_ROW } else { 1 }
        };
        Self {
            read: see,
            see,
            passed_over: Vec::new(),
            most: request.scan_limit.filter(|_| ordered).map(most),
        }
    }

    /// Whether the next window would be larger than is allowed.
    pub(crate) fn is_deep_enough(&self) -> bool {
        self.most.is_some_and(|most| self.read >= most)
    }

    /// Reads more rows, and far more where lanes are passed over: of these at first few are seen.
    pub(crate) fn go_further(&mut self) {
        let (read, see) = match self.passed_over.len() {
            0 | MAX_LANES.. => (4, 4),
            _ => (16, 2),
        };
        self.read = self.read.saturating_mul(read).min(self.most.unwrap_or(i64::MAX));
        self.see = self.see.saturating_mul(see).min(self.read);
    }

    /// Sees at least so many rows, because others took those that were seen.
    pub(crate) fn see_at_least(&mut self, rows: u32) {
        self.see = self.see.max(i64::from(rows));
        self.read = self.read.max(self.see);
    }

    /// How many more lanes can be passed over.
    pub(crate) fn room(&self) -> i64 {
        i64::try_from(MAX_LANES.saturating_sub(self.passed_over.len())).unwrap_or(0)
    }

    pub(crate) fn pass_over(&mut self, topic: String, key: String) {
        if self.room() > 0 {
            self.passed_over.push((topic, key));
        }
    }

    /// The lanes that are passed over, for SQL.
    pub(crate) fn lanes(&self) -> Value {
        let row = |topic: &str, key: &str| Value::Row(vec![topic.into(), key.into()]);
        if self.passed_over.is_empty() {
            // The statement does not look at it, but cannot do without.
            return Value::List(vec![row("", "")]);
        }
        Value::List(self.passed_over.iter().map(|(topic, key)| row(topic, key)).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use posthaste_core::lifecycle::LeaseToken;
    use posthaste_core::store::{DeadHead, Scope, WorkerId};

    use super::*;

    fn request(scan_limit: Option<u32>) -> ClaimRequest {
        ClaimRequest {
            worker: WorkerId::new(),
            token: LeaseToken::new(),
            limit: 100,
            max_bytes: 1 << 20,
            scan_limit,
            lease: Duration::from_mins(1),
            max_attempts: 3,
            ordering: KeyOrdering::PerKey {
                dead_head: DeadHead::Skip,
                except: Vec::new(),
            },
            scope: Scope::default(),
            left_out: Vec::new(),
            pipelined: false,
        }
    }

    #[test]
    fn a_scan_limit_is_an_upper_bound() {
        let mut window = ScanWindow::first(&request(Some(4_000)), 100);
        let mut read = Vec::new();
        while !window.is_deep_enough() {
            window.go_further();
            read.push(window.read);
        }
        assert_eq!(read, [2_000, 4_000]);
        assert!(ScanWindow::first(&request(Some(100)), 100).is_deep_enough());
        assert!(!ScanWindow::first(&request(None), 100).is_deep_enough());

        let mut rare = ScanWindow::first(&request(Some(8_000)), 100);
        rare.pass_over("t".into(), "hot".into());
        for _ in 0..3 {
            rare.go_further();
        }
        assert_eq!((rare.read, rare.see), (128_000, 4_000));
        assert!(rare.is_deep_enough());
    }

    #[test]
    fn lanes_are_passed_over_while_there_is_room() {
        let mut window = ScanWindow::first(&request(None), 100);
        window.pass_over("t".into(), "hot".into());
        window.go_further();
        assert_eq!((window.read, window.see), (8_000, 1_000));
        for n in 0..300 {
            window.pass_over("t".into(), n.to_string());
        }
        assert_eq!((window.room(), window.passed_over.len()), (0, MAX_LANES));
        window.go_further();
        assert_eq!((window.read, window.see), (32_000, 4_000));
    }
}
