//! What keeps the newest shards waiting for those before, for an operator: nobody else can end a transaction that was left open.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long they may wait before it is asked why.
const ASK_AFTER: Duration = Duration::from_secs(10);

/// How often it is asked, and said.
const ASK_INTERVAL: Duration = Duration::from_secs(5);
const SAY_INTERVAL: Duration = Duration::from_mins(1);

/// What is said where they wait and none of the known causes is there.
const NOT_FOUND: &str = "the cause was not found, or is gone by now; look at pg_locks and pg_prepared_xacts";

#[derive(Debug, Default)]
pub(super) struct HoldUps(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    since: Option<Instant>,
    asked_at: Option<Instant>,
    said_at: Option<Instant>,
    found: Vec<String>,
}

impl HoldUps {
    /// Takes note of whether shards wait; says whether it is time to ask why.
    pub(super) fn is_due(&self, waits: bool, now: Instant) -> bool {
        let mut state = self.state();
        if !waits {
            if state.said_at.is_some() {
                tracing::info!("the newest shards of the log are read now");
            }
            *state = State::default();
            return false;
        }
        let since = *state.since.get_or_insert(now);
        let asked = state.asked_at.is_some_and(|at| now.duration_since(at) < ASK_INTERVAL);
        if now.duration_since(since) < ASK_AFTER || asked {
            return false;
        }
        state.asked_at = Some(now);
        true
    }

    /// Takes note of what they wait for, and says it now and then.
    pub(super) fn found(&self, mut found: Vec<String>, now: Instant) {
        if found.is_empty() {
            found.push(NOT_FOUND.to_owned());
        }
        let mut state = self.state();
        let said = state.said_at.is_some_and(|at| now.duration_since(at) < SAY_INTERVAL);
        if !said {
            state.said_at = Some(now);
            let waiting = state.since.map_or(0, |since| now.duration_since(since).as_secs());
            tracing::warn!(
                seconds = waiting,
                held_up_by = found.join("; "),
                "new messages wait: the newest shards of the log are not read before those before are at their end"
            );
        }
        state.found = found;
    }

    /// How long the newest shards have waited.
    pub(super) fn waiting(&self, now: Instant) -> Duration {
        self.state()
            .since
            .map_or(Duration::ZERO, |since| now.duration_since(since))
    }

    /// What an operator should know.
    pub(super) fn notices(&self) -> Vec<String> {
        let state = self.state();
        let notice = |reason: &String| format!("the newest shards of the log wait: {reason}");
        state.found.iter().map(notice).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_waits_without_a_known_cause_says_so() {
        let (hold_ups, now) = (HoldUps::default(), Instant::now());
        assert!(!hold_ups.is_due(true, now));
        assert!(hold_ups.is_due(true, now + ASK_AFTER));
        hold_ups.found(Vec::new(), now + ASK_AFTER);
        assert!(hold_ups.notices()[0].contains(NOT_FOUND));
    }
}
