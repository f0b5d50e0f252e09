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
use crate::path::publication::{self, PendingDelivery};
use crate::reported::{InFlightMessage, NotSent, Reported};
use crate::upkeep::instrument;

/// Publishes one batch; afterwards every message of it has been reported exactly once.
pub(crate) async fn run(
    engine: Arc<Engine>,
    messages: Vec<ClaimedMessage>,
    reclaimed: bool,
    lease: Arc<BatchLease>,
    outcomes: Outcomes,
) {
    let gate = Gate::new(
        Arc::clone(&lease),
        Arc::clone(&engine.lead),
        Arc::clone(&engine.circuit),
    );
    let gate = Arc::new(gate);
    let collector = Arc::new(OutcomeCollector::new(
        messages.len(),
        engine.requirements.batch_settlement,
        outcomes,
        &engine.in_flight,
        &engine.net,
    ));
    let sound = verify(&engine, messages, reclaimed, &lease, &collector);
    if sound.is_empty() {
        return;
    }
    if engine.requirements.in_memory_attempts {
        in_place::run(&engine, sound, &gate, &lease, &collector).await;
    } else {
        publication::run(&engine, sound, &gate, Arc::clone(&collector) as Arc<dyn Sink>).await;
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
) -> Vec<PendingDelivery> {
    let mut stopped: HashSet<(Text, Text)> = HashSet::new();
    let mut sound = Vec::with_capacity(messages.len());
    let mut handed_over: HashMap<Arc<str>, Load> = HashMap::new();
    for claimed in messages {
        let mut in_flight = InFlightMessage::new(&claimed, lease.token, &engine.config.retry);
        if engine.net.is_there() {
            in_flight.whole = Some(Arc::new(claimed.clone()));
        }
        let message = claimed.message;
        in_flight.reclaimed = reclaimed;
        in_flight.destination = engine.publisher.destination(&message);
        let lane = message.ordering_key.clone().map(|key| (message.topic.clone(), key));
        // A renewal may come in the next moment, and must not let the rest of the lane go ahead.
        let behind = lane.as_ref().is_some_and(|lane| stopped.contains(lane));
        in_flight.not_sent = behind.then_some(NotSent::Order).or_else(|| lease.refusal(message.id));
        let held_back = in_flight.not_sent.is_some();
        let recalled = engine
            .refusals
            .recall(message.id, in_flight.version, in_flight.attempts);
        let recalled = recalled.filter(|_| !held_back);
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
        sound.push(PendingDelivery {
            message: in_flight,
            delivery,
        });
    }
    sound
}
