//! Verifies a claimed batch and has it published, once or as often as its table asks for.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use posthaste_core::lifecycle::Verdict;
use posthaste_core::publisher::{Delivery, Outcome};
use posthaste_core::store::ClaimedMessage;
use posthaste_core::{PublishError, Text};

use crate::engine::Engine;
use crate::guard::gate::Gate;
use crate::guard::in_flight::Load;
use crate::guard::lease::BatchLease;
use crate::path::in_place;
use crate::path::outcome_collector::{OutcomeCollector, Outcomes, Sink};
use crate::path::publication::{self, Pending};
use crate::path::turn::Turn;
use crate::reported::{InFlightMessage, NotSent, Reported, Streams};
use crate::upkeep::instrument;

/// Leases are looked at, and what is remembered, once for so many messages: all of them are verified in the same moment.
const LOOK_EVERY: u32 = 64;

/// Publishes one batch; afterwards every message of it has been reported exactly once.
pub(crate) async fn run(
    engine: Arc<Engine>,
    messages: Vec<ClaimedMessage>,
    reclaimed: bool,
    lease: Arc<BatchLease>,
    outcomes: Outcomes,
    turn: Option<Turn>,
) {
    let gate = Gate::new(
        Arc::clone(&lease),
        Arc::clone(&engine.lead),
        Arc::clone(&engine.circuit),
    );
    let gate = Arc::new(gate);
    let collector = Arc::new(OutcomeCollector::new(messages.len(), outcomes, &engine));
    let sound = verify(&engine, messages, reclaimed, &lease, &collector);
    if sound.messages.is_empty() {
        if let Some(mut turn) = turn {
            // The next one is not to come before those before this one.
            turn.come().await;
        }
        return;
    }
    if engine.requirements.in_memory_attempts {
        in_place::run(&engine, sound, &gate, &lease, &collector).await;
    } else {
        publication::run(&engine, sound, &gate, Arc::clone(&collector) as Arc<dyn Sink>, turn).await;
    }
    if let Some(stop) = gate.stopped_at() {
        instrument::stopped(&engine.config.scope.namespace, &stop, collector.given_back());
    }
}

/// Sorts out messages whose bytes are not the ones that were enqueued or that cannot be published (they stop their
/// lane like any other failure), those whose lease is over already, those whose verdict is known from an earlier claim,
/// and those whose destination is unavailable.
fn verify(
    engine: &Engine,
    messages: Vec<ClaimedMessage>,
    reclaimed: bool,
    lease: &BatchLease,
    collector: &OutcomeCollector,
) -> Pending {
    let mut stopped: HashSet<(Text, Text)> = HashSet::new();
    let mut sound = Pending {
        messages: Vec::with_capacity(messages.len()),
        deliveries: Vec::with_capacity(messages.len()),
    };
    let mut handed_over: HashMap<Arc<str>, Load> = HashMap::new();
    let (mut leased, mut any_known) = (false, false);
    let mut streams = Streams::default();
    for (place, claimed) in (0..).zip(messages) {
        if place % LOOK_EVERY == 0 {
            leased = lease.is_clear().is_some();
            any_known = !engine.refusals.is_empty();
        }
        let mut in_flight = InFlightMessage::new(&claimed, lease.token, &engine.config.retry);
        in_flight.stream = streams.of(&claimed.message);
        in_flight.claim = lease.claim;
        in_flight.place = place;
        if engine.net.is_there() {
            in_flight.whole = Some(Arc::new(claimed.clone()));
        }
        let message = claimed.message;
        in_flight.reclaimed = reclaimed;
        in_flight.destination = engine.publisher.destination(&message);
        let lane = in_flight.lane();
        // A renewal may come in the next moment, and must not let the rest of the lane go ahead.
        let behind = !stopped.is_empty() && lane.as_ref().is_some_and(|lane| stopped.contains(lane));
        let behind = behind || engine.lanes.holds_back(&in_flight);
        in_flight.not_sent = if behind {
            Some(NotSent::Order)
        } else if leased {
            None
        } else {
            lease.refusal(message.id)
        };
        let held_back = in_flight.not_sent.is_some();
        let recall = |message: &InFlightMessage| {
            let refusals = &engine.refusals;
            refusals.recall(message.id, message.version, message.attempts)
        };
        let recalled = (any_known && !held_back).then(|| recall(&in_flight)).flatten();
        if let Some(earlier) = recalled.as_ref().and_then(|recalled| recalled.leased.as_ref()) {
            engine.in_flight.finish(std::iter::once(earlier));
        }
        if let Some(recalled) = recalled.filter(|recalled| recalled.holds) {
            // What became of it is known, only not written yet.
            if recalled.verdict != Verdict::Delivered {
                stopped.extend(lane);
            }
            collector.take(if recalled.due {
                Reported {
                    message: in_flight,
                    outcome: recalled.outcome,
                    verdict: recalled.verdict,
                    spooled: recalled.spooled,
                }
            } else {
                Reported::not_attempted(in_flight, NotSent::Unwritten)
            });
            continue;
        }
        let held = match &in_flight.destination {
            _ if held_back => None,
            Some(destination) => {
                let of_batch = handed_over.entry(Arc::clone(destination)).or_default();
                let held = engine.silence.held(destination, *of_batch);
                if held.is_none() {
                    of_batch.messages += 1;
                    of_batch.bytes += in_flight.bytes;
                }
                held
            }
            None => None,
        };
        if !held_back && let Some(held) = held.or_else(|| engine.destinations.held(in_flight.stream)) {
            stopped.extend(lane);
            collector.take(Reported::held(in_flight, held.wait, held.reason));
            continue;
        }
        let unsound = if held_back {
            Some(Outcome::NotAttempted)
        } else if let Some(fault) = claimed.fault {
            Some(Outcome::Failed(PublishError::permanent(fault)))
        } else {
            let verified = claimed.hash.map_or(Ok(()), |hash| hash.verify(&message));
            verified.err().map(|error| Outcome::Corrupt { error })
        };
        if let Some(outcome) = unsound {
            stopped.extend(lane);
            let reported = Reported::new(in_flight, outcome, None, &engine.config.retry);
            engine.send_spans.attempted(&reported);
            collector.take(reported);
            continue;
        }
        instrument::left_out(&message);
        let delivery = Delivery::new(message, claimed.created_at)
            .attempt(claimed.attempts)
            .sequence(claimed.sequence);
        sound.messages.push(in_flight);
        sound.deliveries.push(delivery);
    }
    sound
}
