//! A circuit breaker, as one pure state machine.
//!
//! ```text
//!            failure rate reached                 open_for is over, a call asks
//! Closed ───────────────────────────► Open ─────────────────────────────────────► HalfOpen
//!    ▲                                  ▲                                            │  │
//!    │                                  └───────────── one trial fails ──────────────┘  │
//!    └────────────────────────────────── all trials succeed ───────────────────────────┘
//! ```
//!
//! It reads no clock and takes no lock: the caller passes the time in. A call asks for a [`Permit`] and hands it
//! back with an [`Answer`]; a permit of an earlier state changes nothing, so an answer that comes late cannot disturb
//! the trials, or open a circuit that has just closed.
//!
//! Own code, because the crates for this wrap one call and read the clock themselves, or count consecutive failures,
//! while here permission is asked in one place and the answer comes in another, from a client library's callback.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::publisher::{ErrorKind, ErrorScope, Outcome, Shared};
use crate::retry::MAX_DURATION;

/// When a circuit opens, for how long, and what closes it again.
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// use posthaste_core::BreakerConfig;
///
/// let config = BreakerConfig {
///     failure_rate: 0.2,
///     open_for: Duration::from_secs(10),
///     ..BreakerConfig::default()
/// };
/// assert_eq!(config.validate(), Ok(()));
///
/// let refused = BreakerConfig { failure_rate: 20.0, ..config }.validate().unwrap_err();
/// assert_eq!(refused.field, "failure_rate");
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BreakerConfig {
    /// Whether there is a breaker at all. Defaults to true.
    pub enabled: bool,
    /// How many of the latest calls are looked at. Defaults to 10.
    pub window: u32,
    /// Fewer calls than this open nothing, however many of them failed. Defaults to 5.
    pub minimum_calls: u32,
    /// The share of failed calls at which the circuit opens, above 0 and at most 1. Defaults to 0.5.
    pub failure_rate: f64,
    /// How long nothing is tried once it is open. Defaults to 30 s.
    #[serde(with = "humantime_serde")]
    pub open_for: Duration,
    /// How many calls are tried after that. All of them must succeed. Defaults to 3.
    pub trials: u32,
}

impl Default for BreakerConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            window: 10,
            minimum_calls: 5,
            failure_rate: 0.5,
            open_for: Duration::from_secs(30),
            trials: 3,
        }
    }
}

/// A setting that cannot work.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{field} = {value}: {remedy}")]
pub struct InvalidBreaker {
    /// The field.
    pub field: &'static str,
    /// The value that was given.
    pub value: String,
    /// What to give instead.
    pub remedy: &'static str,
}

impl BreakerConfig {
    /// Checks that the settings can work together.
    ///
    /// # Errors
    /// The first field that cannot work, and what to give instead.
    pub fn validate(&self) -> Result<(), InvalidBreaker> {
        let checks = [
            (self.window > 0, "window", self.window.to_string(), "must be at least 1"),
            (
                (1..=self.window).contains(&self.minimum_calls),
                "minimum_calls",
                self.minimum_calls.to_string(),
                "must be at least 1 and at most window, or the circuit could never open",
            ),
            (
                self.failure_rate > 0.0 && self.failure_rate <= 1.0,
                "failure_rate",
                self.failure_rate.to_string(),
                "must be above 0 and at most 1; 0.5 is one call in two",
            ),
            (
                !self.open_for.is_zero(),
                "open_for",
                format!("{:?}", self.open_for),
                "must be above 0; set enabled = false to have no breaker",
            ),
            (
                self.open_for <= MAX_DURATION,
                "open_for",
                format!("{:?}", self.open_for),
                "must be at most a hundred years",
            ),
            (self.trials > 0, "trials", self.trials.to_string(), "must be at least 1"),
        ];
        match checks.into_iter().find(|(good, ..)| !good) {
            None => Ok(()),
            Some((_, field, value, remedy)) => Err(InvalidBreaker { field, value, remedy }),
        }
    }
}

/// Where a circuit stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CircuitState {
    /// Calls go through.
    Closed,
    /// A few calls go through, to see whether the other side is back.
    HalfOpen,
    /// No call goes through.
    Open,
}

impl CircuitState {
    /// All states.
    pub const ALL: [Self; 3] = [Self::Closed, Self::HalfOpen, Self::Open];

    /// Its name in tables, logs and output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::HalfOpen => "half-open",
            Self::Open => "open",
        }
    }

    /// The state of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }
}

/// The right to make one call. To be handed back with its [`Answer`], whatever that is: a trial that is never answered
/// would keep its place forever.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a permit is handed back with the answer to its call"]
pub struct Permit {
    generation: u64,
}

/// No call now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// When to ask again; `None` while all trials are on their way, until one of them is answered.
    pub until: Option<Instant>,
}

/// How many calls would be permitted now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// As many as there are.
    Free,
    /// So many trials; 0 while all of them are on their way.
    Trials(u32),
    /// None before this time.
    Shut(Instant),
}

/// What a call says about the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is there.
    Success,
    /// It could not be reached, or did not answer.
    Failure,
    /// Nothing. The permit is given back as if it had not been used.
    Nothing,
}

impl From<&Outcome> for Answer {
    /// Only a delivery proves that the broker is there, and only a transport error of the broker as a whole that it is not.
    /// Every other failure may as well have happened on this side, or concern one destination, so that it neither opens a
    /// circuit nor closes one.
    fn from(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Delivered(_) => Self::Success,
            Outcome::Failed(error)
                if error.kind == ErrorKind::Transport
                    && error.scope == ErrorScope::Broker
                    && error.shared != Shared::Beside =>
            {
                Self::Failure
            }
            Outcome::Failed(_) | Outcome::NotAttempted | Outcome::Corrupt { .. } => Self::Nothing,
        }
    }
}

/// A change of state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transition {
    /// From this.
    pub from: CircuitState,
    /// To this.
    pub to: CircuitState,
    /// The share of failed calls that opened it, where that was the cause.
    pub failure_rate: Option<f64>,
}

#[derive(Debug)]
enum State {
    /// The latest calls, true for each that failed.
    Closed(VecDeque<bool>),
    Open {
        until: Instant,
        /// How many calls are tried then.
        trials: u32,
    },
    HalfOpen {
        trials: u32,
        on_their_way: u32,
        succeeded: u32,
    },
}

/// The circuit breaker.
#[derive(Debug)]
pub struct Breaker {
    config: BreakerConfig,
    state: State,
    generation: u64,
}

impl Breaker {
    /// A closed circuit.
    pub fn new(config: BreakerConfig) -> Self {
        Self {
            config,
            state: State::Closed(VecDeque::new()),
            generation: 0,
        }
    }

    /// Where it stands. An open circuit stays open until a call asks after its time is over.
    pub fn state(&self) -> CircuitState {
        match self.state {
            State::Closed(_) => CircuitState::Closed,
            State::Open { .. } => CircuitState::Open,
            State::HalfOpen { .. } => CircuitState::HalfOpen,
        }
    }

    /// How many calls would be permitted at `now`.
    pub fn room(&self, now: Instant) -> Room {
        match self.state {
            State::Closed(_) => Room::Free,
            State::Open { until, .. } if now < until => Room::Shut(until),
            State::Open { trials, .. } => Room::Trials(trials),
            State::HalfOpen {
                trials,
                on_their_way,
                succeeded,
            } => Room::Trials(trials.saturating_sub(on_their_way + succeeded)),
        }
    }

    /// Asks for one call. The first one after the open time begins the trials.
    pub fn try_acquire(&mut self, now: Instant) -> (Result<Permit, Refused>, Option<Transition>) {
        let transition = match self.room(now) {
            Room::Shut(until) => return (Err(Refused { until: Some(until) }), None),
            Room::Trials(0) => return (Err(Refused { until: None }), None),
            Room::Trials(trials) if self.state() == CircuitState::Open => Some(self.enter(
                State::HalfOpen {
                    trials,
                    on_their_way: 0,
                    succeeded: 0,
                },
                None,
            )),
            Room::Trials(_) | Room::Free => None,
        };
        if let State::HalfOpen { on_their_way, .. } = &mut self.state {
            *on_their_way += 1;
        }
        let permit = Permit {
            generation: self.generation,
        };
        (Ok(permit), transition)
    }

    /// Whether a permit belongs to the present state.
    pub fn is_current(&self, permit: &Permit) -> bool {
        permit.generation == self.generation
    }

    /// Takes a permit back with its answer.
    #[expect(clippy::needless_pass_by_value, reason = "a permit is used up by its answer")]
    pub fn answer(&mut self, permit: Permit, answer: Answer, now: Instant) -> Option<Transition> {
        if !self.config.enabled || !self.is_current(&permit) {
            return None;
        }
        match (&mut self.state, answer) {
            (State::Closed(_), Answer::Nothing) | (State::Open { .. }, _) => None,
            (State::Closed(calls), answer) => {
                calls.push_back(answer == Answer::Failure);
                if calls.len() > self.config.window as usize {
                    calls.pop_front();
                }
                let rate = failure_rate(calls);
                let opens = calls.len() >= self.config.minimum_calls as usize && rate >= self.config.failure_rate;
                opens.then(|| self.open(now, Some(rate)))
            }
            (State::HalfOpen { .. }, Answer::Failure) => Some(self.open(now, None)),
            (State::HalfOpen { on_their_way, .. }, Answer::Nothing) => {
                *on_their_way -= 1;
                None
            }
            (
                State::HalfOpen {
                    trials,
                    on_their_way,
                    succeeded,
                },
                Answer::Success,
            ) => {
                *on_their_way -= 1;
                *succeeded += 1;
                let closes = succeeded >= trials;
                closes.then(|| self.enter(State::Closed(VecDeque::new()), None))
            }
        }
    }

    /// Which state it is in, of all that it has been in.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The permit of a call that was let through while the circuit was closed, with as many others as there were, in this
    /// [generation](Self::generation).
    pub fn permit_of(generation: u64) -> Permit {
        Permit { generation }
    }

    /// Takes note of calls that succeeded, without their permits: only while the circuit is closed, when calls need none.
    pub fn succeeded(&mut self, calls: u32, now: Instant) -> Option<Transition> {
        if self.state() != CircuitState::Closed {
            return None;
        }
        let generation = self.generation;
        // More than it looks at are as good as those.
        (0..calls.min(self.config.window)).find_map(|_| self.answer(Permit { generation }, Answer::Success, now))
    }

    /// Opens the circuit for a reason that its own calls do not show. One call that succeeds closes it again.
    ///
    /// Changes nothing if it is open already, or if there is to be no breaker.
    ///
    /// # Examples
    /// ```
    /// use std::time::Instant;
    ///
    /// use posthaste_core::BreakerConfig;
    /// use posthaste_core::breaker::{Breaker, CircuitState, Room};
    ///
    /// let config = BreakerConfig::default();
    /// let (mut breaker, now) = (Breaker::new(config.clone()), Instant::now());
    /// assert_eq!(breaker.trip(now).map(|change| change.to), Some(CircuitState::Open));
    /// assert_eq!(breaker.room(now), Room::Shut(now + config.open_for));
    /// assert_eq!(breaker.room(now + config.open_for), Room::Trials(1));
    /// ```
    pub fn trip(&mut self, now: Instant) -> Option<Transition> {
        let is_open = matches!(self.state, State::Open { .. });
        (self.config.enabled && !is_open).then(|| self.open_for(1, now, None))
    }

    fn open(&mut self, now: Instant, failure_rate: Option<f64>) -> Transition {
        self.open_for(self.config.trials, now, failure_rate)
    }

    fn open_for(&mut self, trials: u32, now: Instant, failure_rate: Option<f64>) -> Transition {
        let until = now + self.config.open_for;
        self.enter(State::Open { until, trials }, failure_rate)
    }

    fn enter(&mut self, state: State, failure_rate: Option<f64>) -> Transition {
        let from = self.state();
        self.state = state;
        self.generation += 1;
        Transition {
            from,
            to: self.state(),
            failure_rate,
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "windows are small")]
fn failure_rate(calls: &VecDeque<bool>) -> f64 {
    calls.iter().filter(|failed| **failed).count() as f64 / calls.len() as f64
}
