//! Whether a message of a batch may be handed to the broker: its lease must hold, the relay must be the one to do it,
//! and the circuit must let it through.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use posthaste_core::MessageId;
use posthaste_core::breaker::{Answer, Breaker, Permit};
use posthaste_core::publisher::Outcome;

use tokio::time::Instant;

use crate::guard::changes;
use crate::guard::circuit::Circuit;
use crate::guard::lead::Lead;
use crate::guard::lease::BatchLease;
use crate::reported::NotSent;

#[derive(Debug)]
pub(crate) struct Gate {
    lease: Arc<BatchLease>,
    lead: Arc<Lead>,
    circuit: Arc<Circuit>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    permits: HashMap<MessageId, Permit>,
    stopped: bool,
    stopped_at: Option<Stop>,
}

/// How long an answer holds for the whole batch. Leases end a headroom early that is far longer.
const CLEARANCE: Duration = Duration::from_millis(1);

/// The right to send messages of a batch without a look at each, until something changes.
#[derive(Debug)]
pub(crate) struct Clearance {
    since: Instant,
    /// How many changes there were when it was granted.
    changes: AtomicU64,
    /// Until when, in nanoseconds.
    until: AtomicU64,
    generation: AtomicU64,
}

impl Default for Clearance {
    fn default() -> Self {
        Self {
            since: Instant::now(),
            changes: AtomicU64::new(u64::MAX),
            until: AtomicU64::new(0),
            generation: AtomicU64::new(0),
        }
    }
}

impl Clearance {
    fn grant(&self, changes: u64, how_long: Duration, generation: u64) {
        // In this order: a look that sees the new end sees at least the old count.
        self.generation.store(generation, Ordering::SeqCst);
        self.changes.store(changes, Ordering::SeqCst);
        self.until
            .store(self.now().saturating_add(nanoseconds(how_long)), Ordering::SeqCst);
    }

    /// The circuit's generation, if messages may be sent now.
    pub(crate) fn holds(&self) -> Option<u64> {
        let until = self.until.load(Ordering::SeqCst);
        let unchanged = self.changes.load(Ordering::SeqCst) == changes::count();
        (unchanged && self.now() < until).then(|| self.generation.load(Ordering::SeqCst))
    }

    fn now(&self) -> u64 {
        nanoseconds(self.since.elapsed())
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Where a batch was stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stop {
    /// The first message that was not let through.
    pub(crate) at: MessageId,
    /// For how long the broker throttles, if that is why, and in which words.
    pub(crate) throttled: Option<(Duration, String)>,
}

impl Gate {
    pub(crate) fn new(lease: Arc<BatchLease>, lead: Arc<Lead>, circuit: Arc<Circuit>) -> Self {
        Self {
            lease,
            lead,
            circuit,
            state: Mutex::default(),
        }
    }

    /// Tells the circuit what became of a message, and what that says about the broker. That counts also if the
    /// publisher did not ask: it may hang, or find out that the broker is unavailable, before it has a message to send.
    /// Returns the least wait of a message that failed because the broker is unavailable.
    /// `cleared_in` is the circuit's generation in which it was let through with others.
    pub(crate) fn answer(
        &self,
        id: MessageId,
        cleared_in: Option<u64>,
        outcome: &Outcome,
        answer: Answer,
    ) -> Option<Duration> {
        let asked = self.state().permits.remove(&id);
        let asked = asked.or_else(|| cleared_in.map(Breaker::permit_of));
        let permit = asked.or_else(|| (answer != Answer::Nothing).then(|| self.circuit.permit())?);
        match permit {
            Some(permit) => self.circuit.answer(permit, outcome, answer),
            None => self.circuit.least_wait(),
        }
    }

    /// Where the circuit stopped the batch, if it did.
    pub(crate) fn stopped_at(&self) -> Option<Stop> {
        self.state().stopped_at.clone()
    }

    /// Why a message was not sent.
    pub(crate) fn refusal(&self, id: MessageId) -> NotSent {
        if let Some(refusal) = self.lease.refusal(id) {
            return refusal;
        }
        let state = self.state();
        match &state.stopped_at {
            Some(stop) if stop.throttled.is_some() => NotSent::Throttled,
            Some(_) => NotSent::Circuit,
            None if state.stopped => NotSent::Standby,
            None => NotSent::Order,
        }
    }

    /// May be asked more than once, by publishers in front of publishers. The first refusal ends the batch: if a trial
    /// became free a little later, or the lead came back, a message could pass an earlier one of its key.
    pub(crate) fn may_send(&self, id: MessageId) -> bool {
        if !self.lease.may_send(id) {
            return false;
        }
        let mut state = self.state();
        if !self.lead.is_leader() {
            state.stopped = true;
            return false;
        }
        if let Some(permit) = state.permits.get(&id)
            && self.circuit.is_current(permit)
        {
            return true;
        }
        if state.stopped {
            return false;
        }
        let Some(permit) = self.circuit.permit() else {
            state.stopped = true;
            state.stopped_at = Some(Stop {
                at: id,
                throttled: self.circuit.paused(),
            });
            return false;
        };
        state.permits.insert(id, permit);
        true
    }

    /// Lets all messages of the batch through for a moment, if nothing at all speaks against it.
    pub(crate) fn clear(&self, clearance: &Clearance) {
        // First of all: what changes from now on ends it.
        let changes = changes::count();
        let Some(left) = self.lease.is_clear() else { return };
        if !self.lead.is_leader() || self.state().stopped {
            return;
        }
        if let Some(generation) = self.circuit.is_clear() {
            clearance.grant(changes, left.min(CLEARANCE), generation);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code panics while holding the lock, and the data would be sound if it did.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use posthaste_core::breaker::CircuitState;
    use posthaste_core::lifecycle::LeaseToken;
    use posthaste_core::{BreakerConfig, PublishError};
    use tokio::time::advance;

    use super::*;
    use crate::config::RelayConfig;
    use crate::guard::clock::Moment;
    use crate::observed::observe;

    const LEASE: Duration = Duration::from_mins(10);

    fn unavailable() -> Outcome {
        Outcome::Failed(PublishError::transport("connection refused"))
    }

    fn circuit() -> Arc<Circuit> {
        Arc::new(Circuit::new(BreakerConfig::default(), "default"))
    }

    fn gate(circuit: &Arc<Circuit>) -> Gate {
        let lease = BatchLease::new(LeaseToken::new(), Moment::now(), LEASE, std::iter::empty());
        let lead = Lead::new(&RelayConfig::default());
        Gate::new(Arc::new(lease), Arc::new(lead), Arc::clone(circuit))
    }

    fn told(gate: &Gate, id: MessageId, outcome: &Outcome) -> Option<Duration> {
        gate.answer(id, None, outcome, Answer::from(outcome))
    }

    /// Opens the circuit through a batch of its own.
    fn open(circuit: &Arc<Circuit>) {
        let gate = gate(circuit);
        for id in [(); 5].map(|()| MessageId::new()) {
            assert!(gate.may_send(id));
            told(&gate, id, &unavailable());
        }
        assert_eq!(circuit.view().state, CircuitState::Open);
    }

    #[tokio::test(start_paused = true)]
    async fn why_a_message_was_not_sent_is_known() {
        let (circuit, id) = (circuit(), MessageId::new());
        let batch = gate(&circuit);
        assert_eq!(batch.refusal(id), NotSent::Order, "nothing else stopped it");
        circuit.pause(Duration::from_secs(9), "quota");
        assert!(!batch.may_send(id));
        assert_eq!(batch.refusal(id), NotSent::Throttled);
        advance(Duration::from_secs(10)).await;
        open(&circuit);
        let batch = gate(&circuit);
        assert!(!batch.may_send(id));
        assert_eq!(batch.refusal(id), NotSent::Circuit);
        advance(LEASE).await;
        assert_eq!(batch.refusal(id), NotSent::Lease);
        batch.lease.revoke();
        assert_eq!(batch.refusal(id), NotSent::Stopping);
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_that_asks_twice_is_one_trial() {
        let circuit = circuit();
        open(&circuit);
        advance(Duration::from_secs(30)).await;
        let (gate, ids) = (gate(&circuit), [(); 4].map(|()| MessageId::new()));
        for id in &ids[..3] {
            assert!(gate.may_send(*id) && gate.may_send(*id));
        }
        assert!(!gate.may_send(ids[3]), "three trials");
    }

    /// Proves pitfall 5.
    #[tokio::test(start_paused = true)]
    async fn what_was_refused_is_not_overtaken_when_a_trial_becomes_free() {
        let circuit = circuit();
        open(&circuit);
        advance(Duration::from_secs(30)).await;
        let (gate, ids) = (gate(&circuit), [(); 5].map(|()| MessageId::new()));
        ids[..3].iter().for_each(|id| assert!(gate.may_send(*id)));
        assert!(!gate.may_send(ids[3]));
        told(&gate, ids[0], &Outcome::Failed(PublishError::permanent("too large")));
        assert!(!gate.may_send(ids[4]), "the fourth was refused, so the fifth is");
        assert_eq!(gate.stopped_at().map(|stop| stop.at), Some(ids[3]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_permit_from_before_is_worth_nothing_once_the_circuit_is_open() {
        let circuit = circuit();
        let (batch, id) = (gate(&circuit), MessageId::new());
        assert!(batch.may_send(id));
        open(&circuit);
        assert!(!batch.may_send(id), "asked again right before it is sent");
        advance(Duration::from_secs(30)).await;
        told(&batch, id, &Outcome::DELIVERED);
        assert_eq!(circuit.view().state, CircuitState::Open, "a late answer is no trial");
    }

    #[tokio::test(start_paused = true)]
    async fn a_publisher_that_hangs_before_it_asks_counts_too() {
        let circuit = circuit();
        for _ in 0..5 {
            told(&gate(&circuit), MessageId::new(), &unavailable());
        }
        assert_eq!(circuit.view().state, CircuitState::Open);
        assert_eq!(circuit.view().reason.as_deref(), Some("connection refused"));
    }

    #[tokio::test(start_paused = true)]
    async fn while_the_broker_is_unavailable_failures_are_postponed_and_failed_trials_for_longer() {
        let circuit = circuit();
        let (batch, ids) = (gate(&circuit), [(); 6].map(|()| MessageId::new()));
        for id in &ids {
            assert!(batch.may_send(*id));
        }
        let waits = ids.map(|id| told(&batch, id, &unavailable()));
        assert_eq!(waits[..4], [None; 4], "most deliveries may succeed yet");
        assert_eq!(waits[4..], [Some(Duration::ZERO); 2], "opened by the fifth");
        advance(Duration::from_secs(30)).await;
        let (trial, id) = (gate(&circuit), MessageId::new());
        assert!(trial.may_send(id));
        let wait = told(&trial, id, &unavailable()).expect("the broker is unavailable");
        assert!((15..=45).contains(&wait.as_secs()), "{wait:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_is_over_takes_no_trial() {
        let circuit = circuit();
        open(&circuit);
        advance(Duration::from_secs(30)).await;
        let (stopping, id) = (gate(&circuit), MessageId::new());
        stopping.lease.revoke();
        assert!(!stopping.may_send(id));
        assert_eq!(circuit.view().state, CircuitState::Open, "nothing was tried");
        assert_eq!(stopping.stopped_at(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_that_stops_because_the_broker_throttles_says_so() {
        let circuit = circuit();
        let (gate, id) = (gate(&circuit), MessageId::new());
        circuit.pause(Duration::from_mins(2), "too many requests");
        advance(Duration::from_secs(30)).await;
        assert!(!gate.may_send(id));
        let stop = gate.stopped_at().unwrap();
        assert_eq!(
            stop.throttled,
            Some((Duration::from_secs(90), "too many requests".to_owned()))
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_relay_that_does_not_lead_hands_nothing_over() {
        let exclusive = RelayConfig {
            exclusive: true,
            ..RelayConfig::default()
        };
        let standing_by = Gate {
            lead: Arc::new(Lead::new(&exclusive)),
            ..gate(&circuit())
        };
        assert!(!standing_by.may_send(MessageId::new()));
        assert_eq!(standing_by.stopped_at(), None, "not by the circuit");
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_is_let_through_for_a_moment_and_until_anything_changes() {
        let circuit = circuit();
        let batch = gate(&circuit);
        // Others of this process change things too.
        let granted = |clearance: &Clearance| {
            (0..1_000).any(|_| {
                batch.clear(clearance);
                clearance.holds().is_some()
            })
        };
        let clearance = Clearance::default();
        assert_eq!(clearance.holds(), None, "before it was granted");
        assert!(granted(&clearance));
        advance(CLEARANCE).await;
        assert_eq!(clearance.holds(), None, "it is over");
        assert!(granted(&clearance));
        circuit.pause(Duration::from_secs(9), "quota");
        assert_eq!(clearance.holds(), None);
        assert!(!granted(&clearance), "the broker throttles");
        advance(Duration::from_secs(10)).await;
        assert!(granted(&clearance));
        open(&circuit);
        assert!(clearance.holds().is_none() && !granted(&clearance));
    }

    #[tokio::test(start_paused = true)]
    async fn deliveries_that_were_only_counted_are_weighed_against_failures() {
        let circuit = circuit();
        circuit.succeeded(1_000);
        let waits: Vec<_> = (0..5)
            .map(|_| told(&gate(&circuit), MessageId::new(), &unavailable()))
            .collect();
        assert_eq!(waits[..4], [None; 4], "less than half of the latest ten");
        assert_eq!(circuit.view().state, CircuitState::Open, "the fifth of ten");
        let circuit = self::circuit();
        told(&gate(&circuit), MessageId::new(), &unavailable());
        assert!(circuit.in_doubt(), "nothing ever got through");
        circuit.succeeded(1);
        assert!(!circuit.in_doubt());
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_is_revoked_or_over_ends_the_clearance_of_its_batch() {
        let batch = gate(&circuit());
        let clearance = Clearance::default();
        batch.lease.revoke();
        assert_eq!(clearance.holds(), None);
        batch.clear(&clearance);
        assert_eq!(clearance.holds(), None);
        let batch = gate(&circuit());
        advance((LEASE * 4 / 5).saturating_sub(CLEARANCE / 2)).await;
        for _ in 0..1_000 {
            batch.clear(&clearance);
        }
        advance(CLEARANCE / 2).await;
        assert_eq!(clearance.holds(), None, "not longer than the lease, less its headroom");
    }

    /// Proves C17.
    #[tokio::test(start_paused = true)]
    async fn every_change_is_told_with_its_reason_and_a_healthy_circuit_is_silent() {
        let circuit = circuit();
        let (_, log) = observe(|| {
            for _ in 0..100 {
                told(&gate(&circuit), MessageId::new(), &Outcome::DELIVERED);
            }
        });
        assert_eq!(log, "");
        let (counted, log) = observe(|| {
            for id in [(); 5].map(|()| MessageId::new()) {
                told(&gate(&circuit), id, &unavailable());
            }
        });
        assert_eq!(
            (
                counted["outbox_circuit_transition_count"],
                counted["outbox_circuit_state"]
            ),
            (1, 2)
        );
        let lines: Vec<_> = log.lines().collect();
        assert_eq!(lines.len(), 2, "{log}");
        assert!(lines[0].contains("ERROR") && lines[0].contains("50 %"), "{log}");
        assert!(
            lines[1].contains("WARN") && lines[1].contains("the circuit is open"),
            "{log}"
        );
        assert!(lines.iter().all(|line| line.contains("connection refused")), "{log}");

        advance(Duration::from_secs(30)).await;
        let (counted, log) = observe(|| {
            told(&gate(&circuit), MessageId::new(), &Outcome::DELIVERED);
        });
        assert_eq!(counted["outbox_circuit_state"], 1);
        assert!(
            log.contains("WARN") && log.contains("the circuit is half-open"),
            "{log}"
        );
        assert_eq!(
            circuit.view().reason.as_deref(),
            Some("connection refused"),
            "still the cause"
        );
        let (counted, log) = observe(|| {
            told(&gate(&circuit), MessageId::new(), &Outcome::DELIVERED);
            told(&gate(&circuit), MessageId::new(), &Outcome::DELIVERED);
        });
        assert_eq!(counted["outbox_circuit_state"], 0);
        assert!(log.contains("WARN") && log.contains("the circuit is closed"), "{log}");
        assert_eq!(circuit.view().reason, None);
    }
}
