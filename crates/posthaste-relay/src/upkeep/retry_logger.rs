//! A dependency that is unavailable: waits longer and longer, says so once, and says when it is back.

use std::time::Duration;

use metrics::counter;
use posthaste_core::StoreError;

use crate::upkeep::health::Health;

const FIRST_WAIT: Duration = Duration::from_millis(100);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(5);

/// The state of one loop's connection to the store.
#[derive(Debug)]
pub(crate) struct RetryLogger {
    doing: &'static str,
    health: Health,
    /// Whether messages wait for it.
    matters: bool,
    failures: u32,
}

impl RetryLogger {
    /// For a loop that is `doing` something, in the words of its log lines.
    pub(crate) fn new(doing: &'static str, health: &Health) -> Self {
        Self::of(doing, health, true)
    }

    /// For a loop without which messages are delivered all the same: that it fails makes no relay unhealthy.
    pub(crate) fn aside(doing: &'static str, health: &Health) -> Self {
        Self::of(doing, health, false)
    }

    fn of(doing: &'static str, health: &Health, matters: bool) -> Self {
        let logger = Self {
            doing,
            health: health.clone(),
            matters,
            failures: 0,
        };
        // Counted from 0 on, so that the first failure is an increase.
        logger.count(0);
        logger
    }

    fn count(&self, failures: u64) {
        let namespace = self.health.namespace().to_owned();
        counter!("outbox_store_error_count", "namespace" => namespace, "doing" => self.doing).increment(failures);
    }

    /// Takes note of a failure and returns how long to wait.
    pub(crate) fn failed(&mut self, error: &StoreError) -> Duration {
        let wait = FIRST_WAIT
            .saturating_mul(1 << self.failures.min(16))
            .min(MAX_RETRY_DELAY);
        if self.failures == 0 {
            tracing::warn!(%error, "{} failed; trying again until it works", self.doing);
        } else {
            tracing::debug!(%error, failures = self.failures, "{} still fails", self.doing);
        }
        if self.matters {
            self.health.failed(self.doing, error.to_string());
        }
        self.count(1);
        self.failures = self.failures.saturating_add(1);
        // Several relays that lost the same server must not all come back in the same moment.
        wait.mul_f64(0.5 + rand::random::<f64>() / 2.0)
    }

    /// Takes note of a success.
    pub(crate) fn recovered(&mut self) {
        if self.failures > 0 {
            tracing::info!(failures = self.failures, "{} works again", self.doing);
            self.works();
            self.failures = 0;
        }
    }

    fn works(&self) {
        if self.matters {
            self.health.works(self.doing);
        }
    }
}

impl Drop for RetryLogger {
    /// A loop that has ended fails at nothing.
    fn drop(&mut self) {
        if self.failures > 0 {
            self.works();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observed::observe;
    use posthaste_core::store::StoreErrorKind;

    #[test]
    fn failed_calls_are_counted_from_zero_on() {
        for retry_logger in [
            || RetryLogger::new("testing", &Health::default()),
            || RetryLogger::aside("testing", &Health::default()),
        ] {
            let (counted, _) = observe(|| drop(retry_logger()));
            assert_eq!(counted.get("outbox_store_error_count"), Some(&0), "{counted:?}");
        }
    }

    #[test]
    fn waits_grow_to_a_limit_and_begin_anew_after_a_success() {
        let error = StoreError {
            kind: StoreErrorKind::Unavailable,
            message: "unavailable".into(),
            remedy: None,
            source: None,
        };
        let health = Health::default();
        let mut retry_logger = RetryLogger::new("testing", &health);
        let waits: Vec<_> = (0..40).map(|_| retry_logger.failed(&error)).collect();
        assert!(waits[0] <= FIRST_WAIT && waits[0] >= FIRST_WAIT / 2);
        assert!(
            waits[30..]
                .iter()
                .all(|wait| *wait >= MAX_RETRY_DELAY / 2 && *wait <= MAX_RETRY_DELAY)
        );
        assert_eq!(health.problem().as_deref(), Some("testing fails: unavailable"));
        retry_logger.recovered();
        assert!(health.is_healthy());
        assert!(retry_logger.failed(&error) <= FIRST_WAIT);
    }
}
