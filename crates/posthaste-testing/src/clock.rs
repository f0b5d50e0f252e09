//! Time that moves when told.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chrono::{DateTime, SubsecRound, Utc};
use tokio::time::Instant;

/// A clock for tests. Clones share the time.
///
/// ```
/// use std::time::Duration;
/// use posthaste_testing::TestClock;
///
/// let clock = TestClock::new();
/// let before = clock.now();
/// clock.advance(Duration::from_secs(60));
/// assert_eq!(clock.now() - before, chrono::TimeDelta::seconds(60));
/// ```
#[derive(Clone, Debug)]
pub struct TestClock {
    time: Arc<Mutex<DateTime<Utc>>>,
    ticking_since: Option<Instant>,
}

impl TestClock {
    /// Stands at the present until it is advanced.
    pub fn new() -> Self {
        Self::at(Utc::now())
    }

    /// Stands at `time` until it is advanced.
    pub fn at(time: DateTime<Utc>) -> Self {
        Self {
            // Databases keep microseconds; a finer clock would make times differ that are equal when stored.
            time: Arc::new(Mutex::new(time.trunc_subsecs(6))),
            ticking_since: None,
        }
    }

    /// Moves with Tokio's clock, so also with its paused time, and can be advanced beyond it.
    pub fn ticking() -> Self {
        Self {
            ticking_since: Some(Instant::now()),
            ..Self::new()
        }
    }

    /// The time.
    pub fn now(&self) -> DateTime<Utc> {
        let time = *self.time.lock().unwrap_or_else(PoisonError::into_inner);
        let ticked = self.ticking_since.map(|start| start.elapsed()).unwrap_or_default();
        (time + ticked).trunc_subsecs(6)
    }

    /// Moves the time on.
    pub fn advance(&self, by: Duration) {
        *self.time.lock().unwrap_or_else(PoisonError::into_inner) += by;
    }
}

impl Default for TestClock {
    fn default() -> Self {
        Self::new()
    }
}
