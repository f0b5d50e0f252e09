//! A dependency that is unavailable: retried with a growing delay, logged once, and once more when it is back.

use std::fmt::Display;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

const MIN_RETRY_DELAY: Duration = Duration::from_millis(100);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(5);

/// The state of something that may be unavailable, shared by all who need it.
#[derive(Debug)]
pub(crate) struct RetryLogger {
    doing: &'static str,
    failures: Mutex<u32>,
}

impl RetryLogger {
    /// For `doing` something, in the words of the log lines.
    pub(crate) fn new(doing: &'static str) -> Self {
        Self {
            doing,
            failures: Mutex::new(0),
        }
    }

    /// Takes note of a failure and returns how long to wait.
    pub(crate) fn failed(&self, error: impl Display) -> Duration {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if *failures == 0 {
            tracing::warn!(%error, "{} failed; trying again until it works", self.doing);
        } else {
            tracing::debug!(%error, failures = *failures, "{} still fails", self.doing);
        }
        let wait = MIN_RETRY_DELAY
            .saturating_mul(1 << (*failures).min(16))
            .min(MAX_RETRY_DELAY);
        *failures = failures.saturating_add(1);
        // Several consumers that lost the same server must not all come back in the same moment.
        wait.mul_f64(0.5 + rand::random::<f64>() / 2.0)
    }

    /// Takes note of a success.
    pub(crate) fn recovered(&self) {
        let failures = std::mem::take(&mut *self.failures.lock().unwrap_or_else(PoisonError::into_inner));
        if failures > 0 {
            tracing::info!(failures, "{} works again", self.doing);
        }
    }
}
