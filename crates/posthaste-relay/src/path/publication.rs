//! One call of the publisher, and the answer that it owes for every message.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use chrono::Utc;
use posthaste_core::publisher::{Batch, Delivery, ErrorKind, ErrorScope, LeaseCheck, Outcome, Place, Report, Shared};
use posthaste_core::readable::Readable;
use posthaste_core::{MessageId, PublishError, Text};
use tokio::time::{Instant, timeout_at};
use tokio_util::task::AbortOnDropHandle;

use crate::engine::Engine;
use crate::guard::blame::Blame;
use crate::guard::destinations::{Destinations, Held, Pass};
use crate::guard::gate::Gate;
use crate::path::failpoint;
use crate::path::outcome_collector::Sink;
use crate::reported::{InFlightMessage, Reported};
use crate::upkeep::instrument::{self, Latency};

/// A message to be sent, with what the engine has to remember of it.
pub(crate) struct PendingDelivery {
    pub(crate) message: InFlightMessage,
    pub(crate) delivery: Delivery,
}

/// Calls the publisher with a batch; afterwards the sink was told exactly once of every message.
pub(crate) async fn run(engine: &Arc<Engine>, pending: Vec<PendingDelivery>, gate: &Arc<Gate>, sink: Arc<dyn Sink>) {
    let mut deliveries = Vec::with_capacity(pending.len());
    let mut messages = HashMap::with_capacity(pending.len());
    let ids = pending.iter().map(|pending| pending.message.id).collect();
    for PendingDelivery { mut message, delivery } in pending {
        message.trace.attempt_begins();
        if let Some(destination) = &message.destination {
            engine.silence.handed_over(destination, message.bytes);
        }
        messages.insert(message.id, message);
        deliveries.push(delivery);
    }
    failpoint::pass("before_publish");
    failpoint::swallow(&deliveries);
    let (batch_size, handed_over) = (deliveries.len(), Instant::now());
    let answers = Arc::new(Answers {
        ids,
        latency: Latency::new(&engine.config.scope.namespace),
        owed: Mutex::new(Owed {
            messages,
            passes: HashMap::new(),
            held: HashMap::new(),
            held_lanes: HashSet::new(),
            closed: false,
            last_report: Instant::now(),
        }),
        gate: Arc::clone(gate),
        engine: Arc::clone(engine),
        sink: Arc::downgrade(&sink),
    });
    let report = {
        let answers = Arc::clone(&answers);
        Report::new(move |place, outcome| answers.report_at(place, outcome))
    };
    let batch = Batch::new(deliveries, Arc::clone(&answers) as Arc<dyn LeaseCheck>);
    let publisher = Arc::clone(&engine.publisher);
    // A task of its own: a publisher that panics must not take the relay with it.
    let mut publication = AbortOnDropHandle::new(tokio::spawn(async move { publisher.publish(batch, report).await }));
    let unanswered = loop {
        let deadline = answers.last_report() + engine.config.publish_timeout;
        match timeout_at(deadline, &mut publication).await {
            Ok(Ok(())) => break PublishError::unknown("the publisher returned without an outcome for this message"),
            Ok(Err(panic)) => break PublishError::unknown(format!("the publisher failed: {panic}")),
            Err(_) if answers.last_report() + engine.config.publish_timeout > Instant::now() => {}
            Err(_) => {
                let waited = Readable(engine.config.publish_timeout);
                break PublishError::transport(format!("the publisher gave no answer for {waited}"));
            }
        }
    };
    // First of all: a publisher that blocks its thread goes on after it was aborted, and what is given up here may be
    // in other hands soon.
    answers.revoke();
    publication.abort();
    failpoint::pass("after_publish");
    answers.close(&unanswered);
    instrument::published(&engine.config.scope.namespace, handed_over.elapsed(), batch_size);
}

/// What the publisher still owes: each message's first outcome, and no other.
struct Answers {
    /// By place.
    ids: Vec<MessageId>,
    latency: Latency,
    owed: Mutex<Owed>,
    gate: Arc<Gate>,
    engine: Arc<Engine>,
    /// Held by the call alone. A publisher that blocks a thread keeps its report for as long as it pleases, and must
    /// not keep a relay that stops from ending its settling.
    sink: Weak<dyn Sink>,
}

struct Owed {
    messages: HashMap<MessageId, InFlightMessage>,
    /// The rights to send to destinations that are watched.
    passes: HashMap<MessageId, Pass>,
    /// What is not handed over because of its destination.
    held: HashMap<MessageId, Held>,
    held_lanes: HashSet<(Text, Text)>,
    /// Whether the call was given up.
    closed: bool,
    last_report: Instant,
}

impl LeaseCheck for Answers {
    /// May be asked more than once, by publishers in front of publishers.
    fn may_send(&self, place: Place) -> bool {
        let Some(&id) = self.ids.get(place.index()) else {
            return false;
        };
        let mut owed = self.owed();
        if owed.closed || !owed.messages.contains_key(&id) {
            return false;
        }
        if self.engine.destinations.any() && !owed.pass(id, &self.engine.destinations, &self.engine.blame) {
            return false;
        }
        if let Some(message) = owed.messages.get_mut(&id) {
            message.trace.is_sent();
        }
        drop(owed);
        self.gate.may_send(id)
    }
}

impl Owed {
    /// Whether a message may go to its destination.
    fn pass(&mut self, id: MessageId, destinations: &Destinations, blame: &Blame) -> bool {
        let Some(message) = self.messages.get(&id) else {
            return false;
        };
        let stream = message.stream;
        let lane = message.key.clone().map(|key| (message.topic.clone(), key));
        // If the destination comes back in the next moment, that must not let the rest of the lane go ahead.
        if lane.as_ref().is_some_and(|lane| self.held_lanes.contains(lane)) {
            return false;
        }
        if let Some(before) = self.passes.remove(&id) {
            if destinations.is_current(&before) {
                self.passes.insert(id, before);
                return true;
            }
            destinations.answer(stream, Some(before), &Outcome::NotAttempted);
        }
        match destinations.pass(stream, blame.was_tried(id)) {
            Ok(pass) => {
                self.passes.extend(pass.map(|pass| (id, pass)));
                true
            }
            Err(held) => {
                self.held.insert(id, held);
                self.held_lanes.extend(lane);
                false
            }
        }
    }
}

impl Answers {
    fn report_at(&self, place: Place, outcome: Outcome) {
        if let Some(id) = self.ids.get(place.index()) {
            self.report(*id, outcome);
        }
    }

    fn report(&self, id: MessageId, outcome: Outcome) {
        let mut owed = self.owed();
        owed.last_report = Instant::now();
        let Some(mut message) = owed.messages.remove(&id) else {
            return;
        };
        let (pass, held) = (owed.passes.remove(&id), owed.held.remove(&id));
        drop(owed);
        let Engine {
            destinations, config, ..
        } = &*self.engine;
        let circuit = &self.engine.circuit;
        if let Some(destination) = &message.destination {
            self.engine.silence.answered(destination, message.bytes);
        }
        let outcome = self.engine.blame.judge(id, message.stream, outcome);
        match &outcome {
            Outcome::Delivered(_) => self.latency.acknowledged(message.created_at),
            Outcome::NotAttempted => message.not_sent = Some(self.gate.refusal(id)),
            _ => {}
        }
        let mut finding = destinations.answer(message.stream, pass, &outcome);
        destinations.open_if_nothing_succeeds(circuit, &mut finding);
        let mut least_wait = self.gate.answer(id, &outcome, finding.answer);
        if let Outcome::Failed(PublishError {
            kind,
            scope,
            message: cause,
            shared,
            ..
        }) = &outcome
        {
            if *shared != Shared::No {
                least_wait = least_wait.or(Some(Duration::ZERO));
            }
            let mut in_doubt = circuit.in_doubt();
            match scope {
                ErrorScope::Destination(_) => {
                    least_wait = least_wait.max(finding.least_wait);
                    in_doubt |= finding.in_doubt;
                }
                // Its neighbours get through, and still it is not the message that is to blame.
                ErrorScope::Partition(_) => {
                    let age = (Utc::now() - message.created_at).to_std().unwrap_or_default();
                    let wait = growing_wait(age, config.retry.backoff.longest(), rand::random());
                    least_wait = least_wait.max(Some(wait));
                }
                ErrorScope::Broker => {
                    if let ErrorKind::Throttled { retry_after } = kind {
                        circuit.pause(config.retry.throttle_wait(*retry_after), cause);
                    }
                }
                // It waits alone.
                _ => {}
            }
            // Too few calls may have failed to say that the broker is unavailable; but nothing got through either, and
            // a message must not die of that. Without a breaker attempts are all that is wanted to count.
            if in_doubt && config.breaker.enabled && message.attempts >= message.max_attempts {
                least_wait = least_wait.or(Some(Duration::ZERO));
            }
        }
        // The outcome of a call that is gone is not waited for.
        let Some(sink) = self.sink.upgrade() else { return };
        let reported = match (outcome, held) {
            (Outcome::NotAttempted, Some(Held { wait, reason })) => Reported::held(message, wait, reason),
            (outcome, _) => Reported::new(message, outcome, least_wait, &config.retry),
        };
        self.engine.send_spans.attempted(&reported);
        sink.take(reported);
    }

    fn last_report(&self) -> Instant {
        self.owed().last_report
    }

    /// From now on nothing of this call may be sent.
    fn revoke(&self) {
        self.owed().closed = true;
    }

    /// Reports what the publisher did not.
    fn close(&self, error: &PublishError) {
        let open: Vec<(MessageId, Option<Arc<str>>)> = {
            let owed = self.owed();
            let messages = owed.messages.values();
            messages
                .map(|message| (message.id, message.destination.clone()))
                .collect()
        };
        for (id, destination) in open {
            let error = match destination {
                // That one destination is silent says nothing about the others.
                Some(destination) if error.kind == ErrorKind::Transport => error.clone().at(destination),
                _ => error.clone(),
            };
            self.report(id, Outcome::Failed(error));
        }
    }

    fn owed(&self) -> MutexGuard<'_, Owed> {
        // No code panics while holding the lock, and the data would be sound if it did.
        self.owed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The least wait of a message that fails without using attempts, so that its backoff never grows: by its age instead.
/// Else the messages of a partition that stays unavailable would be tried all the time, each for as long as the client
/// waits, and leave no room for others.
fn growing_wait(age: Duration, longest: Duration, random: f64) -> Duration {
    (age / 2).min(longest).mul_f64(0.5 + random.clamp(0.0, 1.0) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_attempts_a_wait_grows_with_the_age_of_its_message_up_to_the_longest_backoff() {
        let (second, longest) = (Duration::from_secs(1), Duration::from_mins(5));
        let wait = |age, random| growing_wait(age, longest, random);
        assert_eq!(wait(Duration::ZERO, 1.0), Duration::ZERO);
        assert_eq!(wait(second * 20, 1.0), second * 10);
        assert_eq!(wait(second * 20, 0.0), second * 5);
        assert_eq!(wait(second * 3_600, 1.0), longest);
        assert_eq!(wait(second * 3_600, 0.0), longest / 2);
        // As old as can be, and the longest wait that a policy has.
        let most = posthaste_core::retry::MAX_DURATION;
        assert_eq!(growing_wait(Duration::MAX, most, 1.0), most);
    }
}
