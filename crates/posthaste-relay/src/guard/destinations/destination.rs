//! One destination, and where it stands.

use std::time::Duration;

use posthaste_core::BreakerConfig;
use posthaste_core::breaker::{Answer, Breaker, CircuitState, Permit};
use tokio::time::Instant;

#[derive(Debug)]
pub(super) struct Destination {
    pub(super) breaker: Breaker,
    /// Until when it throttles.
    pub(super) paused_until: Option<Instant>,
    /// Failures in a row.
    pub(super) streak: u32,
    /// How often it was found to be unavailable in a row.
    pub(super) openings: u32,
    /// Whether messages wait that were not tried since it was found to be unavailable.
    pub(super) others: bool,
    /// How many messages wait since then.
    pub(super) held: u32,
    /// When its last pause was over.
    pub(super) free_since: Option<Instant>,
    /// With the publisher and not answered.
    pub(super) outstanding: u32,
    pub(super) reason: String,
    pub(super) failed_at: Instant,
    /// Where it stands according to the figures.
    pub(super) shown: Option<CircuitState>,
}

/// No message waits longer without a look: a relay that is started anew, or another one, may find the destination there.
const MAX_HOLD: Duration = Duration::from_mins(1);

/// The time by which the ends of two waits differ.
const HOLD_SPACING: Duration = Duration::from_millis(1);

/// How much longer the n-th message waits that a destination holds. Were all of them due at once, claims would bring nothing
/// else for as long as it takes to put them off again, while the messages of other destinations wait behind them.
pub(crate) fn spread(n: u32) -> Duration {
    HOLD_SPACING * n
}

/// Why a message is not handed over now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Held {
    /// Look again after this time.
    pub(crate) wait: Duration,
    pub(crate) reason: String,
}

impl Destination {
    pub(super) fn new(config: BreakerConfig, now: Instant) -> Self {
        Self {
            breaker: Breaker::new(config),
            paused_until: None,
            // In doubt from its first failure on: it is not known that anything ever got through.
            streak: 1,
            openings: 0,
            others: false,
            held: 0,
            free_since: None,
            outstanding: 0,
            reason: String::new(),
            failed_at: now,
            shown: None,
        }
    }

    /// Whether its messages have to wait now.
    pub(super) fn held(&mut self, place: &str) -> Option<Held> {
        let left = self.paused_until?.saturating_duration_since(Instant::now());
        if left.is_zero() {
            self.free_since = self.paused_until.take();
            return None;
        }
        self.held = self.held.saturating_add(1);
        Some(self.hold(place, left.min(MAX_HOLD) + spread(self.held)))
    }

    /// Whether trials are better made with other messages; not for long, as these may be gone.
    pub(super) fn has_others(&self, patience: Duration) -> bool {
        let expected = self.free_since.is_some_and(|since| since.elapsed() < patience);
        self.others && expected && self.breaker.state() != CircuitState::Closed
    }

    pub(super) fn hold(&self, place: &str, wait: Duration) -> Held {
        Held {
            // Not all in one moment.
            wait: wait.mul_f64(1.0 + rand::random::<f64>() / 4.0),
            reason: format!("{place} is unavailable: {}", self.reason),
        }
    }

    pub(super) fn succeeded_if(&mut self, delivered: bool, permit: Permit) {
        let answer = if delivered { Answer::Success } else { Answer::Nothing };
        self.breaker.answer(permit, answer, Instant::now().into_std());
        if delivered {
            self.streak = 0;
            if self.breaker.state() == CircuitState::Closed {
                self.openings = 0;
            }
        }
    }
}
