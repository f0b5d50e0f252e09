//! Destinations that are unavailable or throttle, while others are not.
//!
//! A publisher says of a failure how far it reaches. One that reaches a destination (a topic without a leader, a host
//! that is down, a tenant over its quota) counts for that destination's own breaker, and only its messages wait: they
//! are postponed without being handed over, and without an attempt. However many destinations fail, that says nothing
//! about the broker: a publisher that cannot reach the broker says so itself. Only where it is known which destinations there
//! are, and all of them are unavailable, does the relay stop as a whole: see [`outage`].
//!
//! Where a message goes is known to the publisher alone, and follows from its topic, type and tenant. So messages that
//! agree in those are a stream, and the destination of a stream is learnt from its last failure.

mod destination;
mod figures;
mod known;
mod outage;
#[cfg(test)]
mod tests;
mod unavailable;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use posthaste_core::breaker::{Answer, CircuitState, Permit};
use posthaste_core::publisher::{ErrorKind, ErrorScope, Outcome, Shared};
use posthaste_core::readable::Readable;
use posthaste_core::{BreakerConfig, PublishError, RetryPolicy};
use tokio::time::Instant;

use self::destination::Destination;
pub(crate) use self::destination::{Held, spread};
use self::figures::Figures;
use self::known::{Known, MAX_DESTINATIONS, MAX_STREAMS};
use crate::guard::changes;

/// While all trials of a destination are on their way, or its share of the window is used up, others wait for so long.
const NEXT_LOOK: Duration = Duration::from_secs(1);

/// The longest time between trials of a destination that stays unavailable; each failed trial doubles it.
const MAX_OPEN: Duration = Duration::from_mins(5);

#[derive(Debug)]
pub(crate) struct Destinations {
    namespace: String,
    config: BreakerConfig,
    /// Most messages of a destination in doubt that may be with the publisher.
    share: u32,
    retry: RetryPolicy,
    /// All destinations that there are, if the publisher says so.
    all: Vec<Arc<str>>,
    /// Whether any destination is known at all; most relays never learn of one.
    any: AtomicBool,
    figures: Figures,
    state: Mutex<Known>,
}

/// The right to hand a message over, as far as its destination goes.
#[derive(Debug)]
pub(crate) struct Pass {
    place: Arc<str>,
    permit: Permit,
}

/// What an outcome says about the broker, and about a message that failed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// For the circuit to the broker.
    pub(crate) answer: Answer,
    /// The least wait, if the destination has been found to be unavailable.
    pub(crate) least_wait: Option<Duration>,
    /// Nothing got through to the destination since its failures began.
    pub(crate) in_doubt: bool,
    /// Why nothing gets through anywhere, if that is so.
    outage: Option<String>,
}

impl Destinations {
    pub(crate) fn new(config: BreakerConfig, retry: RetryPolicy, max_in_flight: u32, namespace: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            config,
            share: (max_in_flight / 2).max(1),
            retry,
            all: Vec::new(),
            any: AtomicBool::new(false),
            figures: Figures::new(namespace),
            state: Mutex::default(),
        }
    }

    /// With these destinations and no others.
    pub(crate) fn with_all(self, all: Vec<Arc<str>>) -> Self {
        self.figures.show_all_closed(&all);
        Self { all, ..self }
    }

    /// Whether any destination is known.
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Whether messages of a stream have to wait. Takes no trial.
    pub(crate) fn held(&self, stream: u64) -> Option<Held> {
        if !self.any() {
            return None;
        }
        let mut state = self.state();
        let place = state.streams.get(&stream).cloned()?;
        let destination = state.places.get_mut(&place)?;
        destination.held(&place)
    }

    /// Asks for the right to hand a message over; a destination that nothing is known of needs none. One that was `tried`
    /// in vain is no trial while there are others.
    pub(crate) fn pass(&self, stream: u64, tried: bool) -> Result<Option<Pass>, Held> {
        let mut state = self.state();
        let Some(place) = state.streams.get(&stream).cloned() else {
            return Ok(None);
        };
        let Some(destination) = state.places.get_mut(&place) else {
            return Ok(None);
        };
        if let Some(held) = destination.held(&place) {
            destination.others |= !tried;
            return Err(held);
        }
        if tried && destination.has_others(self.config.open_for) {
            return Err(destination.hold(&place, NEXT_LOOK));
        }
        if destination.streak > 0 && destination.outstanding >= self.share {
            return Err(destination.hold(&place, NEXT_LOOK));
        }
        let (asked, _) = destination.breaker.try_acquire(Instant::now().into_std());
        let Ok(permit) = asked else {
            return Err(destination.hold(&place, NEXT_LOOK));
        };
        destination.outstanding += 1;
        // A trial makes it half open.
        self.figures.show(&mut state, &place);
        Ok(Some(Pass { place, permit }))
    }

    /// Whether a pass that was given is still worth something.
    pub(crate) fn is_current(&self, pass: &Pass) -> bool {
        let state = self.state();
        let destination = state.places.get(&pass.place);
        destination.is_some_and(|destination| destination.breaker.is_current(&pass.permit))
    }

    /// Takes note of what became of a message.
    pub(crate) fn answer(&self, stream: u64, pass: Option<Pass>, outcome: &Outcome) -> Finding {
        let failure = match outcome {
            Outcome::Failed(error) => match &error.scope {
                ErrorScope::Destination(place) => Some((place, error)),
                _ => None,
            },
            _ => None,
        };
        let mut finding = Finding {
            answer: Answer::from(outcome),
            least_wait: None,
            in_doubt: false,
            outage: None,
        };
        if failure.is_none() && !self.any() {
            return finding;
        }
        let mut state = self.state();
        let mut permit = None;
        if let Some(pass) = pass
            && let Some(destination) = state.places.get_mut(&pass.place)
        {
            destination.outstanding = destination.outstanding.saturating_sub(1);
            if failure.is_some_and(|(place, _)| *place == pass.place) {
                permit = Some(pass.permit);
            } else {
                let before = destination.breaker.state();
                destination.succeeded_if(outcome.is_delivered(), pass.permit);
                self.tell(&pass.place, destination, before);
                self.figures.show(&mut state, &pass.place);
            }
        }
        match failure {
            Some((place, error)) => {
                self.failed(&mut state, stream, place, permit, error, &mut finding);
                self.figures.show(&mut state, place);
                finding.outage = self.outage(&mut state);
            }
            None if outcome.is_delivered() => {
                if let Some(place) = state.streams.get(&stream).cloned()
                    && let Some(destination) = state.places.get_mut(&place)
                {
                    destination.streak = 0;
                }
            }
            None => {}
        }
        finding
    }

    fn failed(
        &self,
        state: &mut Known,
        stream: u64,
        place: &Arc<str>,
        permit: Option<Permit>,
        error: &PublishError,
        finding: &mut Finding,
    ) {
        let now = Instant::now();
        if !self.any.swap(true, Ordering::Relaxed) {
            changes::note();
        }
        if state.places.len() >= MAX_DESTINATIONS || state.streams.len() >= MAX_STREAMS {
            state.forget_the_well(now);
        }
        state.streams.insert(stream, Arc::clone(place));
        let destination = state
            .places
            .entry(Arc::clone(place))
            .or_insert_with(|| Destination::new(self.config.clone(), now));
        destination.reason.clone_from(&error.message);
        destination.failed_at = now;
        let mut before = destination.breaker.state();
        match error.kind {
            // Another one counts for it.
            ErrorKind::Transport if error.shared == Shared::Beside => {
                if let Some(permit) = permit {
                    destination.breaker.answer(permit, Answer::Nothing, now.into_std());
                }
                finding.in_doubt = destination.streak > 1;
                finding.least_wait = destination.held(place).map(|held| held.wait);
            }
            ErrorKind::Transport => {
                destination.streak = destination.streak.saturating_add(1);
                let permit = permit.or_else(|| destination.breaker.try_acquire(now.into_std()).0.ok());
                // Only now: a trial that was not asked for makes it half open.
                before = destination.breaker.state();
                if let Some(permit) = permit {
                    destination.breaker.answer(permit, Answer::Failure, now.into_std());
                }
                if before != CircuitState::Open && destination.breaker.state() == CircuitState::Open {
                    let open = self.config.open_for.saturating_mul(1 << destination.openings.min(8));
                    destination.paused_until = Some(now + open.min(MAX_OPEN.max(self.config.open_for)));
                    destination.others = false;
                    destination.held = 0;
                    destination.openings = destination.openings.saturating_add(1);
                }
                finding.in_doubt = destination.streak > 1;
                finding.least_wait = destination.held(place).map(|held| held.wait);
            }
            ErrorKind::Throttled { retry_after } => {
                let until = now + self.retry.throttle_wait(retry_after);
                let paused = destination.paused_until.filter(|paused| *paused > now);
                destination.paused_until = paused.max(Some(until));
                // Once for a pause, and not for each of the answers that ask for it.
                if paused.is_none_or(|paused| paused + NEXT_LOOK < until) {
                    tracing::warn!(
                        namespace = self.namespace,
                        destination = &**place,
                        error = error.message,
                        "a destination throttles; its messages wait for {}",
                        Readable(until - now)
                    );
                }
                if let Some(permit) = permit {
                    destination.breaker.answer(permit, Answer::Nothing, now.into_std());
                }
            }
            _ => {
                if let Some(permit) = permit {
                    destination.breaker.answer(permit, Answer::Nothing, now.into_std());
                }
            }
        }
        if let Some(destination) = state.places.get(place) {
            self.tell(place, destination, before);
        }
    }

    fn tell(&self, place: &str, destination: &Destination, before: CircuitState) {
        let (namespace, reason) = (&self.namespace, &destination.reason);
        match (before, destination.breaker.state()) {
            (CircuitState::Closed, CircuitState::Open) => tracing::error!(
                namespace,
                destination = place,
                error = reason,
                "a destination is unavailable; its messages wait, without using attempts, and others go on"
            ),
            (CircuitState::HalfOpen, CircuitState::Open) => {
                tracing::warn!(
                    namespace,
                    destination = place,
                    error = reason,
                    "a destination is still unavailable"
                );
            }
            (CircuitState::HalfOpen, CircuitState::Closed) => {
                tracing::warn!(namespace, destination = place, "a destination is back");
            }
            _ => {}
        }
    }

    fn state(&self) -> MutexGuard<'_, Known> {
        // No code panics while holding the lock, and the data would be sound if it did.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
