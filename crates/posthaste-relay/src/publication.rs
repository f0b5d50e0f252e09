//! One call of the publisher, and the answer that it owes for every message.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use posthaste_core::publisher::{Batch, Delivery, LeaseCheck, Outcome, Report};
use posthaste_core::{MessageId, PublishError, RetryPolicy};
use tokio::time::{Instant, timeout_at};
use tokio_util::task::AbortOnDropHandle;

use crate::engine::{Engine, Reported};
use crate::failpoint;
use crate::gate::Gate;
use crate::in_flight::Ticket;

/// A message to be sent, with what the engine has to remember of it.
pub(crate) struct Parcel {
    pub(crate) ticket: Ticket,
    pub(crate) delivery: Delivery,
}

/// Takes what became of messages.
pub(crate) trait Sink: Send + Sync {
    fn take(&self, reported: Reported);
}

/// Calls the publisher with a batch; afterwards the sink was told exactly once of every message.
pub(crate) async fn run(engine: &Engine, parcels: Vec<Parcel>, gate: &Arc<Gate>, sink: Arc<dyn Sink>) {
    let mut deliveries = Vec::with_capacity(parcels.len());
    let mut tickets = HashMap::with_capacity(parcels.len());
    for Parcel { ticket, delivery } in parcels {
        tickets.insert(ticket.id, ticket);
        deliveries.push(delivery);
    }
    failpoint::pass("before_publish");
    failpoint::swallow(&deliveries);
    let answers = Arc::new(Answers {
        owed: Mutex::new(Owed {
            tickets,
            last_report: Instant::now(),
        }),
        gate: Arc::clone(gate),
        retry: engine.config.retry.clone(),
        sink,
    });
    let report = {
        let answers = Arc::clone(&answers);
        Report::new(move |id, outcome| answers.report(id, outcome))
    };
    let batch = Batch::new(deliveries, Arc::clone(gate) as Arc<dyn LeaseCheck>);
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
                publication.abort();
                let waited = engine.config.publish_timeout;
                break PublishError::transport(format!("the publisher gave no answer for {waited:?}"));
            }
        }
    };
    failpoint::pass("after_publish");
    answers.close(&unanswered);
}

/// What the publisher still owes: each message's first outcome, and no other.
struct Answers {
    owed: Mutex<Owed>,
    gate: Arc<Gate>,
    retry: RetryPolicy,
    sink: Arc<dyn Sink>,
}

struct Owed {
    tickets: HashMap<MessageId, Ticket>,
    last_report: Instant,
}

impl Answers {
    fn report(&self, id: MessageId, outcome: Outcome) {
        let mut owed = self.owed();
        owed.last_report = Instant::now();
        let Some(ticket) = owed.tickets.remove(&id) else {
            return;
        };
        drop(owed);
        let away = self.gate.answer(id, &outcome);
        self.sink.take(Reported::new(ticket, outcome, away, &self.retry));
    }

    fn last_report(&self) -> Instant {
        self.owed().last_report
    }

    /// Reports what the publisher did not.
    fn close(&self, error: &PublishError) {
        let open: Vec<MessageId> = self.owed().tickets.keys().copied().collect();
        for id in open {
            self.report(id, Outcome::Failed(error.clone()));
        }
    }

    fn owed(&self) -> MutexGuard<'_, Owed> {
        // No code panics while holding the lock, and the data would be sound if it did.
        self.owed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
