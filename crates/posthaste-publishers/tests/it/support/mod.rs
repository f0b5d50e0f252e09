//! A batch, a lease and a report to hand to a publisher.
#![allow(dead_code, reason = "each test binary uses its own part of it")]

#[cfg(feature = "kafka")]
pub mod kafka;
#[cfg(feature = "kafka")]
pub mod mock;
#[cfg(feature = "kafka")]
#[path = "../../../../posthaste-kafka/tests/support/patient_admin.rs"]
mod patient_admin;
#[cfg(feature = "http")]
pub mod receiver;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use chrono::DateTime;
use posthaste_core::publisher::{Delivery, LeaseCheck, Outcome, Place, PublishError};
use posthaste_core::{Batch, Message, Publisher, Report};

/// A message on topic `t` with the lane `key`, or without one if it is empty.
pub fn message(key: &str, payload: &str) -> Message {
    let message = Message::new("t", payload.to_owned());
    if key.is_empty() { message } else { message.key(key) }
}

pub fn deliveries(messages: &[Message]) -> Vec<Delivery> {
    let delivery = |(index, message): (usize, &Message)| {
        let mut delivery = Delivery::new(message.clone(), DateTime::UNIX_EPOCH);
        delivery.place = Place::new(index);
        delivery
    };
    messages.iter().enumerate().map(delivery).collect()
}

/// A lease that has run out for some messages.
struct Lease(Vec<usize>);

impl LeaseCheck for Lease {
    fn may_send(&self, place: Place) -> bool {
        !self.0.contains(&place.index())
    }
}

/// An outcome without what the broker said of a message that it took.
pub fn without_receipt(outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::Delivered(_) => Outcome::DELIVERED,
        outcome => outcome,
    }
}

/// Publishes the messages and returns one outcome for each, without receipts, in the order of the messages.
pub async fn publish(publisher: &impl Publisher, messages: &[Message]) -> Vec<Outcome> {
    publish_without_lease(publisher, messages, &[]).await
}

/// The first messages of a test, before anything is in their way. A broker on a busy machine may be slow to answer its first
/// questions; what was not sent because of that is sent again, in order.
pub async fn publish_at_first(publisher: &impl Publisher, messages: &[Message]) {
    let deadline = Instant::now() + Duration::from_mins(2);
    let mut rest = messages.to_vec();
    while !rest.is_empty() {
        let outcomes = publish(publisher, &rest).await;
        assert!(Instant::now() < deadline, "{outcomes:?}");
        let mut outcomes = outcomes.iter();
        rest.retain(|_| outcomes.next().is_none_or(|outcome| !outcome.is_delivered()));
    }
}

/// The same, with a lease that has run out for the messages at `expired`.
pub async fn publish_without_lease(
    publisher: &impl Publisher,
    messages: &[Message],
    expired: &[usize],
) -> Vec<Outcome> {
    let lease = Lease(expired.to_vec());
    let outcomes: Arc<Mutex<Vec<(Place, Outcome)>>> = Arc::default();
    let sink = Arc::clone(&outcomes);
    let report = Report::new(move |place, outcome| sink.lock().unwrap().push((place, without_receipt(outcome))));
    publisher
        .publish(Batch::new(deliveries(messages), Arc::new(lease)), report)
        .await;
    let outcomes = outcomes.lock().unwrap();
    assert_eq!(outcomes.len(), messages.len(), "one outcome for each message");
    (0..messages.len())
        .map(|index| {
            let mut of_message = outcomes.iter().filter(|(place, _)| place.index() == index);
            of_message.next().expect("an outcome for each message").1.clone()
        })
        .collect()
}

pub fn refused() -> PublishError {
    PublishError::transient("refused")
}
