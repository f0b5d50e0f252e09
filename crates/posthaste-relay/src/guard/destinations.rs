//! Destinations that are away or ask for patience, while others are not.
//!
//! A publisher says of a failure how far it reaches. One that reaches a destination (a topic without a leader, a host that
//! is down, a tenant over its quota) counts for that destination's own breaker, and only its messages wait: they are
//! postponed without being handed over, and without an attempt. However many destinations fail, that says nothing about
//! the broker: a publisher that cannot reach the broker says so itself.
//!
//! Where a message goes is known to the publisher alone, and follows from its topic, type and tenant. So messages that
//! agree in those are a stream, and the destination of a stream is learnt from its last failure.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use metrics::gauge;
use posthaste_core::breaker::{Answer, Breaker, CircuitState, Permit};
use posthaste_core::publisher::{ErrorKind, ErrorScope, Outcome};
use posthaste_core::{BreakerConfig, PublishError, RetryPolicy};
use tokio::time::Instant;

/// While all trials of a destination are on their way, or its share of the window is used up, others wait for so long.
const NEXT_LOOK: Duration = Duration::from_secs(1);

/// The longest time between trials of a destination that stays away; each failed trial doubles it.
const MAX_OPEN: Duration = Duration::from_mins(5);

/// Destinations that have been well for this long are forgotten, once there are many.
const WELL_AFTER: Duration = Duration::from_mins(1);
const MANY: usize = 1_000;
const MANY_STREAMS: usize = 10_000;

#[derive(Debug)]
pub(crate) struct Destinations {
    namespace: String,
    config: BreakerConfig,
    /// Most messages of a destination in doubt that may be with the publisher.
    share: u32,
    retry: RetryPolicy,
    /// Whether any destination is known at all; most relays never learn of one.
    any: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Where each stream goes, by its last failure.
    streams: HashMap<u64, Arc<str>>,
    places: HashMap<Arc<str>, Destination>,
}

#[derive(Debug)]
struct Destination {
    breaker: Breaker,
    /// Until when it asked for patience.
    paused_until: Option<Instant>,
    /// Failures in a row.
    streak: u32,
    /// How often it was found to be away in a row.
    openings: u32,
    /// With the publisher and not answered.
    outstanding: u32,
    reason: String,
    failed_at: Instant,
}

/// The right to hand a message over, as far as its destination goes.
#[derive(Debug)]
pub(crate) struct Pass {
    place: Arc<str>,
    permit: Permit,
}

/// Why a message is not handed over now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Held {
    /// Look again after this time.
    pub(crate) wait: Duration,
    pub(crate) reason: String,
}

/// What an outcome says about the broker, and about a message that failed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// For the circuit to the broker.
    pub(crate) answer: Answer,
    /// The least wait, if the destination has been found to be away.
    pub(crate) away: Option<Duration>,
    /// Nothing got through to the destination since its failures began.
    pub(crate) in_doubt: bool,
}

impl Destinations {
    pub(crate) fn new(config: BreakerConfig, retry: RetryPolicy, max_in_flight: u32, namespace: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            config,
            share: (max_in_flight / 2).max(1),
            retry,
            any: AtomicBool::new(false),
            state: Mutex::default(),
        }
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

    /// Asks for the right to hand a message over; a destination that nothing is known of needs none.
    pub(crate) fn pass(&self, stream: u64) -> Result<Option<Pass>, Held> {
        let mut state = self.state();
        let Some(place) = state.streams.get(&stream).cloned() else {
            return Ok(None);
        };
        let Some(destination) = state.places.get_mut(&place) else {
            return Ok(None);
        };
        if let Some(held) = destination.held(&place) {
            return Err(held);
        }
        if destination.streak > 0 && destination.outstanding >= self.share {
            return Err(destination.hold(&place, NEXT_LOOK));
        }
        let (asked, _) = destination.breaker.try_acquire(Instant::now().into_std());
        let Ok(permit) = asked else {
            return Err(destination.hold(&place, NEXT_LOOK));
        };
        destination.outstanding += 1;
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
            away: None,
            in_doubt: false,
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
                destination.succeeded_if(*outcome == Outcome::Delivered, pass.permit);
                self.tell(&pass.place, destination, before);
            }
        }
        match failure {
            Some((place, error)) => self.failed(&mut state, stream, place, permit, error, &mut finding),
            None if *outcome == Outcome::Delivered => {
                if let Some(place) = state.streams.get(&stream).cloned()
                    && let Some(destination) = state.places.get_mut(&place)
                {
                    destination.streak = 0;
                }
            }
            None => {}
        }
        self.show(&state);
        finding
    }

    fn failed(
        &self,
        state: &mut State,
        stream: u64,
        place: &Arc<str>,
        permit: Option<Permit>,
        error: &PublishError,
        finding: &mut Finding,
    ) {
        let now = Instant::now();
        self.any.store(true, Ordering::Relaxed);
        if state.places.len() >= MANY || state.streams.len() >= MANY_STREAMS {
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
            ErrorKind::Transport => {
                destination.streak = destination.streak.saturating_add(1);
                let permit = permit.or_else(|| destination.breaker.try_acquire(now.into_std()).0.ok());
                // Only now: a trial that nobody asked for makes it half open.
                before = destination.breaker.state();
                if let Some(permit) = permit {
                    destination.breaker.answer(permit, Answer::Failure, now.into_std());
                }
                if before != CircuitState::Open && destination.breaker.state() == CircuitState::Open {
                    let open = self.config.open_for.saturating_mul(1 << destination.openings.min(8));
                    destination.paused_until = Some(now + open.min(MAX_OPEN.max(self.config.open_for)));
                    destination.openings = destination.openings.saturating_add(1);
                }
                finding.in_doubt = destination.streak > 1;
                finding.away = destination.held(place).map(|held| held.wait);
            }
            ErrorKind::Throttled { retry_after } => {
                let until = now + self.retry.patience(retry_after);
                if destination.paused_until.is_none_or(|paused| paused < until) {
                    destination.paused_until = Some(until);
                    tracing::warn!(
                        namespace = self.namespace,
                        destination = &**place,
                        error = error.message,
                        "a destination asks for patience; its messages wait for {:?}",
                        until - now
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
                "a destination is away; its messages wait, without using attempts, and others go on"
            ),
            (CircuitState::HalfOpen, CircuitState::Open) => {
                tracing::warn!(
                    namespace,
                    destination = place,
                    error = reason,
                    "a destination is still away"
                );
            }
            (CircuitState::HalfOpen, CircuitState::Closed) => {
                tracing::warn!(namespace, destination = place, "a destination is back");
            }
            _ => {}
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "gauges are floats")]
    fn show(&self, state: &State) {
        let away = state
            .places
            .values()
            .filter(|place| place.breaker.state() != CircuitState::Closed);
        gauge!("outbox_destinations_away", "namespace" => self.namespace.clone()).set(away.count() as f64);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code panics while holding the lock, and the data would be sound if it did.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Destination {
    fn new(config: BreakerConfig, now: Instant) -> Self {
        Self {
            breaker: Breaker::new(config),
            paused_until: None,
            // In doubt from its first failure on: it is not known that anything ever got through.
            streak: 1,
            openings: 0,
            outstanding: 0,
            reason: String::new(),
            failed_at: now,
        }
    }

    /// Whether its messages have to wait now.
    fn held(&mut self, place: &str) -> Option<Held> {
        let left = self.paused_until?.saturating_duration_since(Instant::now());
        if left.is_zero() {
            self.paused_until = None;
            return None;
        }
        Some(self.hold(place, left))
    }

    fn hold(&self, place: &str, wait: Duration) -> Held {
        Held {
            // Not all in one moment.
            wait: wait.mul_f64(1.0 + rand::random::<f64>() / 4.0),
            reason: format!("{place} is away: {}", self.reason),
        }
    }

    fn succeeded_if(&mut self, delivered: bool, permit: Permit) {
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

impl State {
    fn forget_the_well(&mut self, now: Instant) {
        self.places.retain(|_, place| {
            place.breaker.state() != CircuitState::Closed
                || place.outstanding > 0
                || place.paused_until.is_some_and(|until| until > now)
                || now.duration_since(place.failed_at) < WELL_AFTER
        });
        let places = &self.places;
        self.streams.retain(|_, place| places.contains_key(place));
        if self.streams.len() >= MANY_STREAMS {
            // One failure of each teaches it again; to look through ever more of them at every failure would cost more.
            self.streams.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use posthaste_core::Message;
    use tokio::time::advance;

    use super::*;
    use crate::reported::stream_of;

    fn destinations() -> Destinations {
        Destinations::new(BreakerConfig::default(), RetryPolicy::default(), 100, "default")
    }

    fn away(place: &str) -> Outcome {
        Outcome::Failed(PublishError::transport("connection refused").at(place))
    }

    /// The stream of a topic whose messages have neither type nor tenant.
    fn stream(topic: &str) -> u64 {
        stream_of(&Message::new(topic, ""))
    }

    fn fail(destinations: &Destinations, topic: &str, times: u32) -> Finding {
        let stream = stream(topic);
        (0..times)
            .map(|_| {
                let pass = destinations.pass(stream).expect("it may be tried");
                destinations.answer(stream, pass, &away(topic))
            })
            .last()
            .expect("it was tried")
    }

    #[tokio::test(start_paused = true)]
    async fn a_destination_that_is_away_holds_its_own_messages_and_no_others() {
        let destinations = destinations();
        let finding = fail(&destinations, "a", 5);
        assert_eq!(finding.answer, Answer::Nothing, "the broker is there");
        assert!(finding.away.is_some() && finding.in_doubt);
        let held = destinations.pass(stream("a")).unwrap_err();
        assert!((30..=38).contains(&held.wait.as_secs()), "{held:?}");
        assert!(held.reason.contains("connection refused"), "{held:?}");
        assert!(destinations.held(stream("a")).is_some());
        assert!(destinations.pass(stream("b")).unwrap().is_none());
        assert!(destinations.held(stream("b")).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn after_the_open_time_three_are_tried_and_deliveries_let_all_through() {
        let destinations = destinations();
        fail(&destinations, "a", 5);
        advance(Duration::from_secs(31)).await;
        let passes: Vec<_> = (0..3).map(|_| destinations.pass(stream("a")).unwrap()).collect();
        assert_eq!(passes.iter().flatten().count(), 3);
        assert!(destinations.pass(stream("a")).is_err(), "three trials");
        for pass in passes {
            destinations.answer(stream("a"), pass, &Outcome::Delivered);
        }
        for _ in 0..10 {
            destinations.pass(stream("a")).unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_destination_that_stays_away_is_tried_less_and_less_often() {
        let destinations = destinations();
        fail(&destinations, "a", 5);
        for wait in [30, 60, 120, 240, 300, 300] {
            advance(Duration::from_secs(wait - 1)).await;
            assert!(destinations.pass(stream("a")).is_err(), "{wait}");
            advance(Duration::from_secs(2)).await;
            fail(&destinations, "a", 1);
        }
    }

    /// As of a publisher that knows without asking: a topic that is not there.
    #[tokio::test(start_paused = true)]
    async fn failures_without_a_trial_keep_a_destination_away_and_use_no_attempts() {
        let destinations = destinations();
        fail(&destinations, "a", 5);
        for wait in [31, 61, 121, 241] {
            advance(Duration::from_secs(wait)).await;
            assert!(destinations.held(stream("a")).is_none(), "it may be tried");
            for _ in 0..3 {
                let finding = destinations.answer(stream("a"), None, &away("a"));
                assert!(finding.away.is_some(), "no attempt is used");
                assert!(destinations.held(stream("a")).is_some());
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn however_many_destinations_fail_the_broker_is_not_to_blame() {
        let destinations = destinations();
        for n in 0..20 {
            let finding = fail(&destinations, &n.to_string(), 5);
            assert_eq!(finding.answer, Answer::Nothing, "destination {n}");
        }
        assert!(destinations.pass(stream("there")).unwrap().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn messages_of_one_topic_that_go_to_several_destinations_wait_for_their_own_alone() {
        let destinations = destinations();
        let of = |tenant: Option<&str>, event_type: Option<&str>| {
            let mut message = Message::new("orders", "");
            message.tenant = tenant.map(Into::into);
            message.event_type = event_type.map(Into::into);
            stream_of(&message)
        };
        let failing = of(Some("acme"), Some("paid"));
        for _ in 0..5 {
            let pass = destinations.pass(failing).expect("it may be tried");
            destinations.answer(failing, pass, &away("orders.acme"));
        }
        assert!(destinations.held(failing).is_some());
        for (tenant, event_type) in [
            (Some("globex"), Some("paid")),
            (Some("acme"), None),
            (None, Some("paid")),
        ] {
            let other = of(tenant, event_type);
            assert!(destinations.held(other).is_none(), "{tenant:?} {event_type:?}");
            assert!(destinations.pass(other).unwrap().is_none());
        }
        // Two streams to one destination share what is known of it.
        let sibling = of(Some("acme"), Some("shipped"));
        destinations.answer(sibling, None, &away("orders.acme"));
        assert!(destinations.held(sibling).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_destination_that_asks_for_patience_gets_it_within_reason() {
        let destinations = destinations();
        let busy = |after| Outcome::Failed(PublishError::throttled(after, "quota").at("a"));
        destinations.answer(stream("a"), None, &busy(Duration::from_secs(10)));
        assert!(destinations.held(stream("a")).is_some() && destinations.held(stream("b")).is_none());
        advance(Duration::from_secs(11)).await;
        assert!(destinations.held(stream("a")).is_none());
        destinations.answer(stream("a"), None, &busy(Duration::MAX));
        advance(Duration::from_mins(61)).await;
        assert!(destinations.held(stream("a")).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_destination_in_doubt_has_half_of_the_window() {
        let destinations = destinations();
        fail(&destinations, "a", 1);
        let passes: Vec<_> = (0..50).map(|_| destinations.pass(stream("a")).unwrap()).collect();
        assert!(destinations.pass(stream("a")).is_err());
        for pass in passes {
            destinations.answer(stream("a"), pass, &Outcome::Delivered);
        }
        let passes: Vec<_> = (0..100).map(|_| destinations.pass(stream("a")).unwrap()).collect();
        assert_eq!(passes.len(), 100, "it is there");
    }

    #[tokio::test(start_paused = true)]
    async fn destinations_that_are_well_are_forgotten() {
        let destinations = destinations();
        for n in 0..MANY * 3 {
            let topic = n.to_string();
            fail(&destinations, &topic, 1);
            advance(Duration::from_secs(1)).await;
        }
        let state = destinations.state();
        assert!(state.places.len() <= MANY && state.streams.len() <= MANY);
    }
}
