//! All attempts within one claim, for tables that have no place to count them.
//!
//! Each lane of the batch goes its own way. When one of its messages fails and may be tried again, the lane waits for the
//! backoff and is then handed over anew, with what was held back behind that message. No lane waits for another one, and
//! the lease is renewed meanwhile. A relay that stops gives waiting lanes back, and so does one whose circuit is open by
//! then: the count is forgotten, which errs on the side of trying more often.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use posthaste_core::MessageId;
use posthaste_core::lifecycle::Verdict;
use posthaste_core::publisher::Delivery;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::engine::Engine;
use crate::guard::gate::Gate;
use crate::guard::lease::BatchLease;
use crate::path::outcome_collector::{OutcomeCollector, Sink};
use crate::path::publication::{self, Pending};
use crate::reported::{NotSent, Reported};
use crate::upkeep::instrument;

/// Publishes a batch until each of its messages has a last word.
pub(crate) async fn run(
    engine: &Arc<Engine>,
    pending: Pending,
    gate: &Arc<Gate>,
    lease: &Arc<BatchLease>,
    collector: &Arc<OutcomeCollector>,
) {
    let (again, mut waiting) = mpsc::unbounded_channel();
    let claim = Arc::new(Claim {
        engine: Arc::clone(engine),
        gate: Arc::clone(gate),
        lease: Arc::clone(lease),
        collector: Arc::clone(collector),
        again,
    });
    let mut rounds = JoinSet::new();
    let watch = |work| engine.supervisor.clone().watch("publishing in place", work);
    rounds.spawn(watch(Box::pin(Arc::clone(&claim).publish(pending)) as BoxFuture));
    loop {
        let lane = tokio::select! {
            Some(lane) = waiting.recv() => lane,
            ended = rounds.join_next() => match (waiting.try_recv(), ended) {
                (Ok(lane), _) => lane,
                (Err(_), Some(_)) => continue,
                (Err(_), None) => return,
            },
        };
        rounds.spawn(watch(Box::pin(Arc::clone(&claim).publish_later(lane))));
    }
}

type BoxFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

struct Claim {
    engine: Arc<Engine>,
    gate: Arc<Gate>,
    lease: Arc<BatchLease>,
    collector: Arc<OutcomeCollector>,
    again: mpsc::UnboundedSender<Waiting>,
}

/// A lane that is to be handed over again.
struct Waiting {
    pending: Pending,
    delay: Duration,
}

impl Claim {
    async fn publish(self: Arc<Self>, pending: Pending) {
        let lanes = Arc::new(Lanes::new(Arc::clone(&self), &pending.deliveries));
        publication::run(&self.engine, pending, &self.gate, lanes, None).await;
    }

    async fn publish_later(self: Arc<Self>, lane: Waiting) {
        tokio::select! {
            () = sleep(lane.delay) => self.publish(lane.pending).await,
            () = self.lease.revoked() => {
                for message in lane.pending.messages {
                    self.collector.take(Reported::not_attempted(message, NotSent::Stopping));
                }
            }
        }
    }

    /// Decides about a lane of which every message was reported and some are not done with.
    fn go_on(&self, open: Vec<(Reported, Delivery)>) {
        let delay = open.iter().filter_map(|(reported, _)| match reported.verdict {
            Verdict::Retry { delay, .. } => Some(delay),
            _ => None,
        });
        let Some(delay) = delay.max() else {
            for (reported, _) in open {
                self.collector.take(reported);
            }
            return;
        };
        let again = |(reported, mut delivery): (Reported, Delivery)| {
            instrument::tried_in_place(&self.engine.config.scope.namespace, &reported);
            self.engine.failure_log.tell(&reported);
            let mut message = reported.message;
            if let Verdict::Retry { .. } = reported.verdict {
                self.engine.totals.count(&reported.verdict);
                message.attempts = message.attempts.saturating_add(1);
            }
            delivery.attempt = message.attempts;
            (message, delivery)
        };
        let (messages, deliveries) = open.into_iter().map(again).unzip();
        let pending = Pending { messages, deliveries };
        // The receiver is gone only if the relay is being dropped.
        let _ = self.again.send(Waiting { pending, delay });
    }
}

/// The lanes of one call of the publisher. One is over when each of its messages was reported.
struct Lanes {
    claim: Arc<Claim>,
    places: HashMap<MessageId, usize>,
    state: Mutex<Vec<Lane>>,
}

#[derive(Default)]
struct Lane {
    /// In order.
    deliveries: Vec<Delivery>,
    reports: usize,
    /// What is not done with.
    open: HashMap<MessageId, Reported>,
}

impl Lanes {
    fn new(claim: Arc<Claim>, deliveries: &[Delivery]) -> Self {
        let mut keyed = HashMap::new();
        let mut places = HashMap::with_capacity(deliveries.len());
        let mut lanes: Vec<Lane> = Vec::new();
        for delivery in deliveries {
            let message = &delivery.message;
            // A message without a key has a lane for itself.
            let new = lanes.len();
            let place = message.lane().map_or(new, |lane| *keyed.entry(lane).or_insert(new));
            if place == new {
                lanes.push(Lane::default());
            }
            lanes[place].deliveries.push(delivery.clone());
            places.insert(message.id, place);
        }
        Self {
            claim,
            places,
            state: Mutex::new(lanes),
        }
    }

    fn state(&self) -> MutexGuard<'_, Vec<Lane>> {
        // No code panics while holding the lock, and the data would be sound if it did.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lane {
    /// What is not done with, in order.
    fn open(mut self) -> Vec<(Reported, Delivery)> {
        let deliveries = self.deliveries.into_iter();
        deliveries
            .filter_map(|delivery| Some((self.open.remove(&delivery.message.id)?, delivery)))
            .collect()
    }
}

impl Sink for Lanes {
    fn take(&self, reported: Reported) {
        let mut lanes = self.state();
        let lane = &mut lanes[self.places[&reported.message.id]];
        lane.reports += 1;
        let done = match reported.verdict {
            Verdict::Delivered | Verdict::Dead { .. } => Some(reported),
            _ => {
                lane.open.insert(reported.message.id, reported);
                None
            }
        };
        let over = (lane.reports == lane.deliveries.len()).then(|| std::mem::take(lane));
        drop(lanes);
        if let Some(reported) = done {
            self.claim.collector.take(reported);
        }
        if let Some(lane) = over {
            self.claim.go_on(lane.open());
        }
    }
}
