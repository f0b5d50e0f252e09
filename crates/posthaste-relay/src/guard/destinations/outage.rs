//! The breaker of the relay as a whole: open while nothing gets through anywhere.
//!
//! Each destination has a breaker of its own. Once all of them are open, whatever is claimed could only be put back, so the
//! relay's [`Circuit`](crate::guard::circuit::Circuit) opens with them and nothing is claimed. When its time is over one
//! message is claimed and tried, wherever it goes; if that fails, another one, until each destination was tried in vain or
//! one message gets through. That one closes the circuit, and the destinations go on each by itself.
//!
//! Only where the publisher says which destinations there are. One that has not been tried may be healthy, and like a healthy
//! one it keeps the circuit closed: no destination waits for others.

use std::time::Duration;

use posthaste_core::breaker::CircuitState;
use tokio::time::Instant;

use super::known::Known;
use super::{Destinations, Finding};
use crate::guard::circuit::Circuit;

impl Destinations {
    /// Opens the circuit if a failure shows that nothing gets through anywhere.
    pub(crate) fn open_if_nothing_succeeds(&self, circuit: &Circuit, finding: &mut Finding) {
        if let Some(until) = finding.outage.as_deref().and_then(|cause| circuit.trip(cause)) {
            finding.least_wait = Some(self.wait_together(until));
        }
    }

    /// Why nothing gets through anywhere, if that is so.
    pub(super) fn outage(&self, state: &mut Known) -> Option<String> {
        let mut reasons = Vec::with_capacity(self.all.len());
        for place in &self.all {
            let destination = state.places.get_mut(place)?;
            if destination.breaker.state() != CircuitState::Open {
                return None;
            }
            reasons.push(destination.held(place)?.reason);
        }
        (!reasons.is_empty()).then(|| reasons.join("; "))
    }

    /// Has all destinations wait until the relay as a whole tries again, however long they would have waited by themselves:
    /// the first message then may go to any of them. Returns the least wait of the message that failed last, so that the
    /// next one to be tried is most likely another.
    fn wait_together(&self, until: Instant) -> Duration {
        let mut state = self.state();
        for place in &self.all {
            if let Some(destination) = state.places.get_mut(place) {
                destination.paused_until = Some(until);
            }
        }
        until
            .saturating_duration_since(Instant::now())
            .mul_f64(0.5 + rand::random::<f64>())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use posthaste_core::publisher::Outcome;
    use posthaste_core::{BreakerConfig, Message, PublishError, RetryPolicy};
    use tokio::time::{advance, timeout};

    use super::*;
    use crate::guard::circuit::View;
    use crate::observed::observe;
    use crate::reported::stream_of;

    const OPEN_FOR: Duration = Duration::from_secs(30);
    const MOMENT: Duration = Duration::from_millis(1);

    /// A relay as far as its breakers go.
    struct Guarded {
        destinations: Destinations,
        circuit: Circuit,
    }

    /// With these destinations; the messages to each are those of the topic with its name.
    fn with(all: &[&str]) -> Guarded {
        let config = BreakerConfig::default();
        let all = all.iter().map(|place| Arc::from(*place)).collect();
        Guarded {
            circuit: Circuit::new(config.clone(), "default"),
            destinations: Destinations::new(config, RetryPolicy::default(), 100, "default").with_all(all),
        }
    }

    impl Guarded {
        /// Hands a message over and takes its outcome, as a publication does.
        fn answer(&self, place: &str, outcome: &Outcome) -> Finding {
            let stream = stream_of(&Message::new(place, ""));
            let pass = self
                .destinations
                .pass(stream, false)
                .expect("its destination may be tried");
            let permit = self.circuit.permit().expect("a message may be tried");
            let mut finding = self.destinations.answer(stream, pass, outcome);
            self.destinations.open_if_nothing_succeeds(&self.circuit, &mut finding);
            self.circuit.answer(permit, outcome, finding.answer);
            finding
        }

        fn fail(&self, place: &str) -> Finding {
            let error = PublishError::transport(format!("{place} refused")).at(place);
            self.answer(place, &Outcome::Failed(error))
        }

        fn fail_often(&self, place: &str) {
            (0..5).for_each(|_| drop(self.fail(place)));
        }

        fn state(&self) -> CircuitState {
            self.circuit.view().state
        }

        fn may_go(&self, place: &str) -> bool {
            self.destinations.held(stream_of(&Message::new(place, ""))).is_none()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn when_the_last_destination_fails_nothing_is_claimed_and_that_is_said_once() {
        let guarded = with(&["a", "b"]);
        guarded.fail_often("a");
        assert_eq!(guarded.state(), CircuitState::Closed, "b may be there");
        (0..4).for_each(|_| drop(guarded.fail("b")));
        let (counted, log) = observe(|| drop(guarded.fail("b")));
        let View { state, reason, .. } = guarded.circuit.view();
        assert_eq!(state, CircuitState::Open);
        let reason = reason.expect("it says why");
        assert!(
            reason.contains("a is unavailable: a refused") && reason.contains("b is unavailable: b refused"),
            "{reason}"
        );
        assert_eq!(counted["outbox_circuit_state"], 2);
        assert_eq!(counted["outbox_circuit_transition_count"], 1);
        assert_eq!(log.matches("no destination is available").count(), 1, "{log}");
        // What was on its way meanwhile.
        let stream = stream_of(&Message::new("b", ""));
        let late = Outcome::Failed(PublishError::transport("late").at("b"));
        let (_, log) = observe(|| {
            let mut finding = guarded.destinations.answer(stream, None, &late);
            guarded
                .destinations
                .open_if_nothing_succeeds(&guarded.circuit, &mut finding);
            assert!(finding.least_wait.is_some(), "no attempt is used");
        });
        assert_eq!(log, "");
        let room = timeout(OPEN_FOR.saturating_sub(MOMENT), guarded.circuit.wait_for_room()).await;
        assert!(room.is_err(), "nothing is claimed: {room:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_destination_that_is_healthy_or_was_not_tried_keeps_the_relay_claiming() {
        let guarded = with(&["a", "b", "c"]);
        guarded.fail_often("a");
        guarded.fail_often("b");
        assert_eq!(guarded.state(), CircuitState::Closed, "nothing is known of c");
        guarded.answer("c", &Outcome::DELIVERED);
        (0..4).for_each(|_| drop(guarded.fail("c")));
        assert_eq!(guarded.state(), CircuitState::Closed, "c may only have hiccups");
        guarded.answer("c", &Outcome::DELIVERED);
        assert_eq!(guarded.circuit.wait_for_room().await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn one_message_that_gets_through_anywhere_ends_it() {
        let guarded = with(&["a", "b"]);
        guarded.fail_often("a");
        guarded.fail_often("b");
        for _ in 0..4 {
            assert!(!guarded.may_go("a") && !guarded.may_go("b"));
            assert_eq!(guarded.circuit.wait_for_room().await, Some(1), "one message");
            assert!(guarded.may_go("a") && guarded.may_go("b"), "wherever it goes");
            guarded.fail("b");
            assert_eq!(guarded.state(), CircuitState::HalfOpen, "a may be there");
            assert_eq!(guarded.circuit.wait_for_room().await, Some(1), "another one");
            assert!(!guarded.may_go("b"));
            let finding = guarded.fail("a");
            assert_eq!(guarded.state(), CircuitState::Open, "each was tried in vain");
            let wait = finding.least_wait.expect("no attempt is used");
            assert!(wait <= OPEN_FOR * 2, "{wait:?}");
        }
        guarded.circuit.wait_for_room().await;
        guarded.answer("a", &Outcome::DELIVERED);
        assert_eq!(guarded.state(), CircuitState::Closed);
        assert!(guarded.may_go("b"), "the same may have ended for others");
        guarded.fail("b");
        assert!(!guarded.may_go("b") && guarded.may_go("a"), "each by itself");
        assert_eq!(guarded.state(), CircuitState::Closed);
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_list_of_destinations_none_of_them_stops_the_relay() {
        let guarded = with(&[]);
        guarded.fail_often("a");
        advance(MOMENT).await;
        assert_eq!(guarded.state(), CircuitState::Closed);
    }
}
