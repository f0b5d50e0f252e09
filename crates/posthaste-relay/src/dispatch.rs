//! Verifies a claimed batch and hands it to the publisher.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use posthaste_core::publisher::{Batch, Delivery, LeaseCheck, Outcome, Report};
use posthaste_core::store::ClaimedMessage;
use posthaste_core::{MessageId, PublishError};
use tokio::time::{Instant, timeout_at};
use tokio_util::task::AbortOnDropHandle;

use crate::engine::{Engine, Outcomes, Reported};
use crate::failpoint;
use crate::gate::Gate;
use crate::in_flight::Ticket;
use crate::instrument;
use crate::lease::BatchLease;

/// Publishes one batch; afterwards every message of it has been reported exactly once.
pub(crate) async fn run(
    engine: Arc<Engine>,
    messages: Vec<ClaimedMessage>,
    lease: Arc<BatchLease>,
    outcomes: Outcomes,
) {
    let gate = Gate::new(
        Arc::clone(&lease),
        Arc::clone(&engine.lead),
        Arc::clone(&engine.circuit),
    );
    let gate = Arc::new(gate);
    let desk = Arc::new(Desk::new(&messages, &lease, Arc::clone(&gate), outcomes));
    let sound = verify(messages, &lease, &desk);
    if sound.is_empty() {
        return;
    }
    failpoint::pass("before_publish");
    failpoint::swallow(&sound);
    let batch = Batch::new(sound, Arc::clone(&gate) as Arc<dyn LeaseCheck>);
    let report = {
        let desk = Arc::clone(&desk);
        Report::new(move |id, outcome| desk.report(id, outcome))
    };
    let publisher = Arc::clone(&engine.publisher);
    // A task of its own: a publisher that panics must not take the relay with it.
    let mut publication = AbortOnDropHandle::new(tokio::spawn(async move { publisher.publish(batch, report).await }));
    let unanswered = loop {
        let deadline = desk.last_report() + engine.config.publish_timeout;
        match timeout_at(deadline, &mut publication).await {
            Ok(Ok(())) => break PublishError::unknown("the publisher returned without an outcome for this message"),
            Ok(Err(panic)) => break PublishError::unknown(format!("the publisher failed: {panic}")),
            Err(_) if desk.last_report() + engine.config.publish_timeout > Instant::now() => {}
            Err(_) => {
                publication.abort();
                let waited = engine.config.publish_timeout;
                break PublishError::transport(format!("the publisher gave no answer for {waited:?}"));
            }
        }
    };
    failpoint::pass("after_publish");
    desk.close(&unanswered);
    if let Some(id) = gate.stopped_at() {
        instrument::stopped(&engine.config.scope.namespace, id, desk.not_attempted());
    }
}

/// Sorts out messages whose bytes are not the ones that were enqueued (they stop their lane like any other failure), and
/// those whose lease is over already.
fn verify(messages: Vec<ClaimedMessage>, lease: &BatchLease, desk: &Desk) -> Vec<Delivery> {
    let mut stopped: HashSet<(String, String)> = HashSet::new();
    let mut sound = Vec::with_capacity(messages.len());
    for claimed in messages {
        let message = claimed.message;
        let lane = message.lane().map(|(topic, key)| (topic.to_owned(), key.to_owned()));
        if lane.as_ref().is_some_and(|lane| stopped.contains(lane)) || !lease.may_send(message.id) {
            desk.report(message.id, Outcome::NotAttempted);
            // A renewal may come in the next moment, and must not let the rest of the lane go ahead.
            stopped.extend(lane);
            continue;
        }
        match claimed.hash.map_or(Ok(()), |hash| hash.verify(&message)) {
            Err(error) => {
                desk.report(message.id, Outcome::Corrupt { error });
                stopped.extend(lane);
            }
            Ok(()) => sound.push(Delivery {
                message,
                created_at: claimed.created_at,
                attempt: claimed.attempts,
            }),
        }
    }
    sound
}

/// Where outcomes of one batch are handed in, each message's first one only.
struct Desk {
    open: Mutex<Open>,
    gate: Arc<Gate>,
    outcomes: Outcomes,
}

struct Open {
    tickets: HashMap<MessageId, Ticket>,
    last_report: Instant,
    not_attempted: usize,
}

impl Desk {
    fn new(messages: &[ClaimedMessage], lease: &BatchLease, gate: Arc<Gate>, outcomes: Outcomes) -> Self {
        let tickets = messages
            .iter()
            .map(|claimed| (claimed.message.id, Ticket::new(claimed, lease.token)))
            .collect();
        Self {
            open: Mutex::new(Open {
                tickets,
                last_report: Instant::now(),
                not_attempted: 0,
            }),
            gate,
            outcomes,
        }
    }

    fn report(&self, id: MessageId, outcome: Outcome) {
        let mut open = self.open();
        open.last_report = Instant::now();
        let Some(ticket) = open.tickets.remove(&id) else {
            return;
        };
        open.not_attempted += usize::from(outcome == Outcome::NotAttempted);
        drop(open);
        let away = self.gate.answer(id, &outcome);
        // The settler outlives every publication; if it is gone the relay is being dropped.
        let _ = self.outcomes.send(Reported { ticket, outcome, away });
    }

    fn last_report(&self) -> Instant {
        self.open().last_report
    }

    fn not_attempted(&self) -> usize {
        self.open().not_attempted
    }

    /// Reports what the publisher did not.
    fn close(&self, error: &PublishError) {
        let open: Vec<MessageId> = self.open().tickets.keys().copied().collect();
        for id in open {
            self.report(id, Outcome::Failed(error.clone()));
        }
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        // No code panics while holding the lock, and the data would be sound if it did.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
