//! A counterpart with its publisher, and the report that watches over every outcome.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use chrono::DateTime;
use posthaste_core::publisher::{Delivery, LeaseCheck, Outcome, Place, PublishError};
use posthaste_core::{Batch, Message, Publisher, Report};
use tokio::time::timeout;

use super::lane_of;
use crate::counterpart::Counterpart;

/// No publisher of the suite has a time-out that comes near to it.
const PUBLISH_TIMEOUT: Duration = Duration::from_mins(1);

/// How long a case waits for what comes by itself.
pub(super) const RECOVERY_TIMEOUT: Duration = Duration::from_mins(1);

/// A counterpart with its publisher.
pub struct Scene<C> {
    pub(super) counterpart: C,
    pub(super) publisher: Arc<dyn Publisher>,
    collectors: Mutex<Vec<Arc<Collector>>>,
}

/// What became of a message, and how long after the start of its batch that was known.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) name: String,
    pub(super) outcome: Outcome,
    pub(super) after: Duration,
}

/// Keeps the outcomes of a batch, also those that come after `publish` has returned.
struct Collector {
    /// Their names, by place.
    messages: Vec<String>,
    reported: Mutex<Vec<(Place, Outcome, Instant)>>,
}

/// Answers by what the case has decided.
struct Lease<F>(F);

impl<F: Fn(Place) -> bool + Send + Sync> LeaseCheck for Lease<F> {
    fn may_send(&self, place: Place) -> bool {
        (self.0)(place)
    }
}

impl<C: Counterpart> Scene<C> {
    pub(super) fn new(counterpart: C) -> Self {
        let publisher = counterpart.publisher();
        Self {
            counterpart,
            publisher,
            collectors: Mutex::default(),
        }
    }

    /// The message with this name.
    pub(super) fn message(&self, name: &str) -> Message {
        super::message(&self.counterpart.topic(), name, "")
    }

    pub(super) fn messages(&self, names: &[&str]) -> Vec<Message> {
        names.iter().map(|name| self.message(name)).collect()
    }

    /// Publishes the messages; what became of each, in their order.
    pub(super) async fn publish(&self, messages: &[Message]) -> Vec<Answer> {
        self.publish_by(&*self.publisher, messages, |_| true).await
    }

    /// Publishes messages with these names, all of which are delivered.
    pub(super) async fn deliver(&self, names: &[&str]) {
        let answers = self.publish(&self.messages(names)).await;
        assert!(
            answers.iter().all(|answer| answer.outcome.is_delivered()),
            "{answers:?}"
        );
    }

    /// Publishes as a relay does, what is not delivered again and again, until everything is.
    pub(super) async fn deliver_in_the_end(&self, mut messages: Vec<Message>) {
        let deadline = Instant::now() + RECOVERY_TIMEOUT;
        while !messages.is_empty() {
            let answers = self.publish(&messages).await;
            assert!(Instant::now() < deadline, "it does not recover: {answers:?}");
            let mut answers = answers.iter();
            messages.retain(|_| answers.next().is_some_and(|answer| !answer.outcome.is_delivered()));
            if !messages.is_empty() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }

    pub(super) async fn publish_by(
        &self,
        publisher: &dyn Publisher,
        messages: &[Message],
        may_send: impl Fn(Place) -> bool + Send + Sync + 'static,
    ) -> Vec<Answer> {
        let of = |message: &Message| {
            let text = String::from_utf8_lossy(&message.payload);
            super::names_in(&text).concat()
        };
        let collector = Arc::new(Collector {
            messages: messages.iter().map(of).collect(),
            reported: Mutex::default(),
        });
        let collectors = self.collectors.lock();
        collectors
            .unwrap_or_else(PoisonError::into_inner)
            .push(Arc::clone(&collector));
        let sink = Arc::clone(&collector);
        let report = Report::new(move |place, outcome| sink.report(place, outcome));
        let deliveries = messages
            .iter()
            .map(|message| Delivery::new(message.clone(), DateTime::UNIX_EPOCH));
        let batch = Batch::new(deliveries.collect(), Arc::new(Lease(may_send)));
        let began = Instant::now();
        let returned = timeout(PUBLISH_TIMEOUT, publisher.publish(batch, report)).await;
        returned.expect("`publish` returns");
        collector.answers(began)
    }

    /// The names of the messages of a lane that arrived, in order; of one that arrived repeatedly the first arrival.
    pub(super) async fn arrived(&self, lane: &str) -> Vec<String> {
        let mut first: Vec<String> = Vec::new();
        for name in self.counterpart.arrived().await {
            if lane_of(&name) == lane && !first.contains(&name) {
                first.push(name);
            }
        }
        first
    }

    /// Closes the publisher; whatever the case was about, no message has had two outcomes.
    pub(super) async fn end(self) {
        self.publisher.close().await;
        let collectors = self.collectors.lock();
        for collector in collectors.unwrap_or_else(PoisonError::into_inner).iter() {
            collector.answers(Instant::now());
        }
    }
}

impl Collector {
    fn report(&self, place: Place, outcome: Outcome) {
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        reported.push((place, outcome, Instant::now()));
    }

    /// Exactly one outcome for each message.
    fn answers(&self, began: Instant) -> Vec<Answer> {
        let reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut by_place: HashMap<Place, Vec<(Outcome, Instant)>> = HashMap::new();
        for (place, outcome, at) in reported {
            by_place.entry(place).or_default().push((outcome, at));
        }
        let answer = |(index, name): (usize, &String)| {
            let outcomes = by_place.remove(&Place::new(index)).unwrap_or_default();
            let [(outcome, at)] = &outcomes[..] else {
                panic!("{name} has {} outcomes and not one: {outcomes:?}", outcomes.len());
            };
            Answer {
                name: name.clone(),
                outcome: outcome.clone(),
                after: at.saturating_duration_since(began),
            }
        };
        let answers = self.messages.iter().enumerate().map(answer).collect();
        assert!(by_place.is_empty(), "outcomes of messages of no batch: {by_place:?}");
        answers
    }
}

/// The error of the message with this name, which has failed.
pub(super) fn failure(answers: &[Answer], name: &str) -> PublishError {
    match outcome(answers, name) {
        Outcome::Failed(error) => error,
        other => panic!("{name} is {other:?} and has not failed: {answers:?}"),
    }
}

/// Those with these names were delivered.
pub(super) fn delivered(answers: &[Answer], names: &[&str]) {
    for name in names {
        let outcome = outcome(answers, name);
        assert!(outcome.is_delivered(), "{name} was not delivered: {answers:?}");
    }
}

/// Those with these names were not attempted.
pub(super) fn not_attempted(answers: &[Answer], names: &[&str]) {
    for name in names {
        assert_eq!(outcome(answers, name), Outcome::NotAttempted, "{name}: {answers:?}");
    }
}

fn outcome(answers: &[Answer], name: &str) -> Outcome {
    let answer = answers.iter().find(|answer| answer.name == name);
    answer.expect("it is of the batch").outcome.clone()
}
