//! The calls of the database that are under way, and what the last ones brought: for health checks.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use posthaste_core::StoreError;
use posthaste_core::store::{OutboxStats, StoreErrorKind};
use tokio::time::Instant;

/// A call that messages wait for and that takes longer makes a relay unready: the database hangs, or is too slow.
pub(crate) const SLOW_CALL: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(crate) struct Calls(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    started: u64,
    /// Those that messages wait for.
    open: Vec<OpenCall>,
    answered: Option<Instant>,
    /// Why the database cannot be reached, if it has given no answer since.
    unreachable: Option<String>,
    claimed: Option<Instant>,
    counted: Option<(Instant, OutboxStats)>,
}

#[derive(Debug)]
struct OpenCall {
    number: u64,
    doing: &'static str,
    since: Instant,
}

/// A call under way; one that is dropped is over.
pub(super) struct Call<'a> {
    calls: &'a Calls,
    number: u64,
}

impl Calls {
    /// A call begins that messages wait for.
    pub(super) fn begin(&self, doing: &'static str) -> Call<'_> {
        let mut state = self.state();
        state.started += 1;
        let number = state.started;
        state.open.push(OpenCall {
            number,
            doing,
            since: Instant::now(),
        });
        Call { calls: self, number }
    }

    /// Takes note of what a call brought. An error of the server is an answer too.
    pub(super) fn ended<T>(&self, result: &Result<T, StoreError>) {
        match result {
            Err(error) if is_silence(error) => self.state().unreachable = Some(error.to_string()),
            _ => self.answered(),
        }
    }

    /// The same of a call that may take longer than a database may be silent.
    pub(super) fn ended_aside<T>(&self, result: &Result<T, StoreError>) {
        if !result.as_ref().is_err_and(is_silence) {
            self.answered();
        }
    }

    fn answered(&self) {
        let mut state = self.state();
        state.answered = Some(Instant::now());
        state.unreachable = None;
    }

    pub(super) fn claimed(&self) {
        self.state().claimed = Some(Instant::now());
    }

    pub(super) fn counted(&self, stats: &OutboxStats) {
        self.state().counted = Some((Instant::now(), stats.clone()));
    }

    /// Why the database is not there for messages; `None` while it answers.
    pub(crate) fn problem(&self) -> Option<String> {
        let state = self.state();
        if let Some(error) = &state.unreachable {
            return Some(format!("the database cannot be reached: {error}"));
        }
        let slowest = state.open.iter().min_by_key(|call| call.since)?;
        let lasts = slowest.since.elapsed();
        (lasts > SLOW_CALL).then(|| {
            let seconds = lasts.as_secs();
            format!("the database has not answered for {seconds}s: {}", slowest.doing)
        })
    }

    /// Whether nothing was asked or answered for so long.
    pub(crate) fn is_quiet(&self, for_so_long: Duration) -> bool {
        let state = self.state();
        let answered_lately = state.answered.is_some_and(|at| at.elapsed() < for_so_long);
        state.open.is_empty() && !answered_lately
    }

    /// Since the database last answered.
    pub(crate) fn since_answer(&self) -> Option<Duration> {
        self.state().answered.map(|at| at.elapsed())
    }

    /// Since the last claim, whatever it brought.
    pub(crate) fn since_claim(&self) -> Option<Duration> {
        self.state().claimed.map(|at| at.elapsed())
    }

    /// What was in the outbox when it was last counted, and how long ago that was.
    pub(crate) fn backlog(&self) -> Option<(Duration, OutboxStats)> {
        let state = self.state();
        let (at, backlog) = state.counted.as_ref()?;
        Some((at.elapsed(), backlog.clone()))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code panics while holding the lock, and the data would be sound if it did.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether nothing was heard of the server. A pool waits for connections to one that is gone, and then is said to have none.
fn is_silence(error: &StoreError) -> bool {
    matches!(error.kind, StoreErrorKind::Unavailable | StoreErrorKind::PoolExhausted)
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.calls.state().open.retain(|call| call.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn failure(kind: StoreErrorKind) -> Result<(), StoreError> {
        Err(StoreError {
            kind,
            message: "gone".into(),
            remedy: None,
            source: None,
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_without_an_answer_is_a_problem_before_it_is_given_up() {
        let calls = Calls::default();
        let call = calls.begin("claiming");
        advance(SLOW_CALL).await;
        assert_eq!(calls.problem(), None);
        advance(Duration::from_secs(1)).await;
        let problem = calls.problem().unwrap();
        assert_eq!(problem, "the database has not answered for 6s: claiming");
        drop(call);
        assert_eq!(calls.problem(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_database_is_unreachable_until_it_answers_be_it_with_an_error() {
        let calls = Calls::default();
        calls.ended(&failure(StoreErrorKind::Unavailable));
        assert!(calls.problem().unwrap().contains("cannot be reached: gone"));
        calls.ended(&failure(StoreErrorKind::Access));
        assert_eq!(calls.problem(), None);
        assert!(!calls.is_quiet(SLOW_CALL));
        advance(SLOW_CALL).await;
        assert!(calls.is_quiet(SLOW_CALL));
    }
}
