//! The circuit breaker at work: one for all batches, with its log lines and metrics.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use metrics::{counter, gauge};
use posthaste_core::breaker::{Answer, Breaker, BreakerConfig, CircuitState, Permit, Room, Transition};
use posthaste_core::publisher::Outcome;
use posthaste_core::readable::Readable;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::{Instant, sleep_until};

use crate::guard::changes;

#[derive(Debug)]
pub(crate) struct Circuit {
    namespace: String,
    config: BreakerConfig,
    state: Mutex<State>,
    /// The breaker's generation while it is closed, else [`NOT_CLOSED`].
    closed_in: AtomicU64,
    /// Deliveries that the breaker has not been told of. It is before it is told or asked anything else.
    successes: AtomicU32,
    changed: Notify,
    answered: Notify,
}

/// A pause that ends so little later than another is the same one, asked for by another answer.
const SAME_PAUSE: Duration = Duration::from_secs(1);

/// The circuit is in no closed state.
const NOT_CLOSED: u64 = u64::MAX;

#[derive(Debug)]
struct State {
    breaker: Breaker,
    since: Instant,
    reason: Option<String>,
    /// The last failure that counted.
    last_failure: String,
    /// Failures since anything was delivered.
    streak: u32,
    /// Until when the broker throttles, and in which words.
    pause: Option<(Instant, String)>,
}

/// Where the circuit stands, for the eyes of an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) state: CircuitState,
    pub(crate) lasted: Duration,
    pub(crate) reason: Option<String>,
}

impl Circuit {
    pub(crate) fn new(config: BreakerConfig, namespace: &str) -> Self {
        let circuit = Self {
            namespace: namespace.to_owned(),
            state: Mutex::new(State {
                breaker: Breaker::new(config.clone()),
                since: Instant::now(),
                reason: None,
                last_failure: String::new(),
                // In doubt from the first failure on: it is not known that anything ever got through.
                streak: 1,
                pause: None,
            }),
            config,
            closed_in: AtomicU64::new(0),
            successes: AtomicU32::new(0),
            changed: Notify::new(),
            answered: Notify::new(),
        };
        circuit.show(CircuitState::Closed);
        circuit
    }

    /// The right to hand one message over, if it may be tried now.
    pub(crate) fn permit(&self) -> Option<Permit> {
        let mut state = self.state();
        if state.paused_until().is_some() {
            return None;
        }
        self.count_successes(&mut state);
        let now = Instant::now().into_std();
        let room = state.breaker.room(now);
        let (asked, transition) = state.breaker.try_acquire(now);
        if let Some(transition) = transition {
            let tried = match room {
                Room::Trials(1) => "one message is tried".to_owned(),
                Room::Trials(trials) => format!("{trials} messages are tried"),
                Room::Free | Room::Shut(_) => "messages are tried".to_owned(),
            };
            let cause = format!("it was open for {}; now {tried}", Readable(self.config.open_for));
            self.changed_to(&mut state, transition, &cause);
        }
        asked.ok()
    }

    /// Nothing gets through anywhere: opens the circuit, if it is not open, until one message does. Returns the time of
    /// the first trial.
    pub(crate) fn trip(&self, cause: &str) -> Option<Instant> {
        let mut state = self.state();
        self.count_successes(&mut state);
        let now = Instant::now();
        let transition = state.breaker.trip(now.into_std())?;
        if transition.from == CircuitState::Closed {
            tracing::error!(
                namespace = self.namespace,
                error = cause,
                "no destination is available; nothing is claimed until a message gets through"
            );
        }
        self.changed_to(&mut state, transition, cause);
        Some(now + self.config.open_for)
    }

    /// Whether the circuit has not changed since the permit was given.
    pub(crate) fn is_current(&self, permit: &Permit) -> bool {
        self.state().breaker.is_current(permit)
    }

    /// Takes a permit back with what became of the message, and what that says about the broker. Returns the least wait
    /// of a message that failed because the broker is unavailable.
    pub(crate) fn answer(&self, permit: Permit, outcome: &Outcome, answer: Answer) -> Option<Duration> {
        let mut state = self.state();
        self.count_successes(&mut state);
        match answer {
            Answer::Success => state.streak = 0,
            Answer::Failure => state.streak = state.streak.saturating_add(1),
            Answer::Nothing => {}
        }
        if let (Answer::Failure, Outcome::Failed(error)) = (answer, outcome) {
            state.last_failure.clone_from(&error.message);
        }
        let trial = state.breaker.state() == CircuitState::HalfOpen && state.breaker.is_current(&permit);
        let now = Instant::now().into_std();
        match state.breaker.answer(permit, answer, now) {
            Some(transition) => {
                // One that opens with a success does so because of failures among the latest.
                let cause = match transition.to {
                    CircuitState::Open => state.last_failure.clone(),
                    _ => "messages get through again".to_owned(),
                };
                self.changed_to(&mut state, transition, &cause);
            }
            None if state.breaker.state() == CircuitState::HalfOpen => self.answered.notify_waiters(),
            None => {}
        }
        drop(state);
        let least_wait = self.least_wait()?;
        if !trial {
            return Some(least_wait);
        }
        // The next trials had better be others: if it is one message that breaks the connection, and it were tried
        // every time, the circuit would stay open for all.
        Some(self.config.open_for.mul_f64(0.5 + rand::random::<f64>()))
    }

    /// The least wait of a message that fails now, if the broker has been found to be unavailable.
    pub(crate) fn least_wait(&self) -> Option<Duration> {
        (self.state().breaker.state() != CircuitState::Closed).then_some(Duration::ZERO)
    }

    /// Whether failures came in a row and nothing got through in between: the broker may be unavailable, though too few
    /// calls have shown that.
    pub(crate) fn in_doubt(&self) -> bool {
        let mut state = self.state();
        self.count_successes(&mut state);
        state.streak > 1
    }

    /// The broker throttles: nothing is claimed or handed over for so long.
    pub(crate) fn pause(&self, wait: Duration, cause: &str) {
        let mut state = self.state();
        let until = Instant::now() + wait;
        if state.paused_until().is_some_and(|paused| paused >= until) {
            return;
        }
        // Once for a pause, and not for each of the answers that ask for it.
        if state.paused_until().is_none_or(|paused| paused + SAME_PAUSE < until) {
            tracing::warn!(
                namespace = self.namespace,
                error = cause,
                "the broker throttles; nothing is claimed for {}",
                Readable(wait)
            );
            counter!("outbox_throttled_count", "namespace" => self.namespace.clone()).increment(1);
        }
        state.pause = Some((until, cause.to_owned()));
        drop(state);
        changes::note();
        self.changed.notify_waiters();
    }

    /// For how long the broker still throttles, and in which words.
    pub(crate) fn paused(&self) -> Option<(Duration, String)> {
        let mut state = self.state();
        let left = state.paused_until()?.duration_since(Instant::now());
        state.pause.as_ref().map(|(_, cause)| (left, cause.clone()))
    }

    pub(crate) fn view(&self) -> View {
        let state = self.state();
        View {
            state: state.breaker.state(),
            lasted: state.since.elapsed(),
            reason: state.reason.clone(),
        }
    }

    /// Waits until messages may be tried; returns how many, if only some.
    pub(crate) async fn wait_for_room(&self) -> Option<u32> {
        loop {
            // Registered before the look, so that no change in between is missed.
            let (changed, answered) = (self.changed.notified(), self.answered.notified());
            let (room, paused) = {
                let mut state = self.state();
                (state.breaker.room(Instant::now().into_std()), state.paused_until())
            };
            let until = match room {
                _ if paused.is_some() => paused,
                Room::Free => return None,
                Room::Trials(0) => None,
                Room::Trials(trials) => return Some(trials),
                Room::Shut(until) => Some(Instant::from_std(until)),
            };
            tokio::select! {
                () = changed => {}
                () = answered => {}
                () = sleep_until(until.unwrap_or_else(Instant::now)), if until.is_some() => {}
            }
        }
    }

    /// Resolves at the next change of state from now on, also if it comes before this is awaited.
    pub(crate) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// The breaker's generation, if every call is let through: then none has to ask for itself.
    pub(crate) fn is_clear(&self) -> Option<u64> {
        let mut state = self.state();
        let clear = state.paused_until().is_none() && state.breaker.state() == CircuitState::Closed;
        clear.then(|| state.breaker.generation())
    }

    /// The breaker's generation while it is closed.
    pub(crate) fn closed_in(&self) -> Option<u64> {
        Some(self.closed_in.load(Ordering::Acquire)).filter(|generation| *generation != NOT_CLOSED)
    }

    /// Takes note of deliveries while the circuit is closed. Nothing is done about them until a failure is to be weighed
    /// against them.
    pub(crate) fn succeeded(&self, calls: u32) {
        self.successes.fetch_add(calls, Ordering::AcqRel);
    }

    fn count_successes(&self, state: &mut State) {
        let calls = self.successes.swap(0, Ordering::AcqRel);
        if calls == 0 {
            return;
        }
        state.streak = 0;
        if let Some(transition) = state.breaker.succeeded(calls, Instant::now().into_std()) {
            let cause = state.last_failure.clone();
            self.changed_to(state, transition, &cause);
        }
    }

    /// Says so while holding the lock: changes are rare, and are told in the order in which they happen.
    fn changed_to(&self, state: &mut State, transition: Transition, cause: &str) {
        let Transition { from, to, failure_rate } = transition;
        let closed_in = if to == CircuitState::Closed {
            state.breaker.generation()
        } else {
            NOT_CLOSED
        };
        self.closed_in.store(closed_in, Ordering::Release);
        changes::note();
        if let Some(rate) = failure_rate {
            let percent = rate * 100.0;
            tracing::error!(
                namespace = self.namespace,
                error = cause,
                "{percent:.0} % of the latest deliveries failed because the broker is unavailable"
            );
        }
        let (from, name) = (from.as_str(), to.as_str());
        tracing::warn!(
            namespace = self.namespace,
            from,
            to = name,
            reason = cause,
            "the circuit is {name}"
        );
        counter!("outbox_circuit_transition_count", "namespace" => self.namespace.clone(), "to" => name).increment(1);
        self.show(to);
        state.since = Instant::now();
        match to {
            CircuitState::Closed => state.reason = None,
            CircuitState::Open => state.reason = Some(cause.to_owned()),
            // What opened it is still what an operator wants to know.
            CircuitState::HalfOpen => {}
        }
        self.changed.notify_waiters();
    }

    fn show(&self, state: CircuitState) {
        gauge!("outbox_circuit_state", "namespace" => self.namespace.clone()).set(level(state));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code panics while holding the lock, and the data would be sound if it did.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A state as a figure: the higher, the worse.
pub(crate) fn level(state: CircuitState) -> f64 {
    match state {
        CircuitState::Closed => 0.0,
        CircuitState::HalfOpen => 1.0,
        CircuitState::Open => 2.0,
    }
}

impl State {
    /// Until when the broker throttles, if that is not over.
    fn paused_until(&mut self) -> Option<Instant> {
        let until = self.pause.as_ref()?.0;
        if until <= Instant::now() {
            self.pause = None;
            return None;
        }
        Some(until)
    }
}
