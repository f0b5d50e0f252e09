//! A broker that remembers.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use posthaste_core::publisher::Delivery;
use posthaste_core::{Batch, Message, MessageId, Outcome, Publisher, Report};
use tokio::sync::watch;

/// Accepts everything and records it in order, repetitions included. Clones share the record.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use posthaste_core::{Message, OutboxOptions, store::ProducerStore};
/// use posthaste_testing::{MemoryStore, RecordingPublisher, drain};
///
/// let (store, broker) = (MemoryStore::new(), RecordingPublisher::new());
/// let messages = vec![Message::new("order-events", "{}")];
/// store.enqueue_and_commit(&OutboxOptions::default(), messages).await.unwrap();
/// drain(store, broker.clone()).await;
/// broker.assert_delivered(|message| message.topic == "order-events");
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RecordingPublisher {
    record: Arc<watch::Sender<Vec<Delivery>>>,
}

impl RecordingPublisher {
    /// A broker with an empty record.
    pub fn new() -> Self {
        Self {
            record: Arc::new(watch::Sender::new(Vec::new())),
        }
    }

    /// Every delivery so far, in order.
    pub fn deliveries(&self) -> Vec<Delivery> {
        self.record.borrow().clone()
    }

    /// The ids of all deliveries so far, in order.
    pub fn ids(&self) -> Vec<MessageId> {
        self.record
            .borrow()
            .iter()
            .map(|delivery| delivery.message.id)
            .collect()
    }

    /// The ids of all messages delivered so far, in the order of their first delivery.
    pub fn first_deliveries(&self) -> Vec<MessageId> {
        let mut ids = Vec::new();
        let mut seen = std::collections::HashSet::new();
        ids.extend(self.ids().into_iter().filter(|id| seen.insert(*id)));
        ids
    }

    /// Waits until there have been `count` deliveries. Bound it with a time-out of the test's own.
    pub async fn wait_for(&self, count: usize) {
        let mut changes = self.record.subscribe();
        // An error would mean that the sender is gone, and `self` holds it.
        let _ = changes.wait_for(|record| record.len() >= count).await;
    }

    /// Forgets everything.
    pub fn clear(&self) {
        self.record.send_modify(Vec::clear);
    }

    /// Panics unless a message for which `wanted` holds was delivered; returns the first one.
    #[track_caller]
    pub fn assert_delivered(&self, wanted: impl Fn(&Message) -> bool) -> Delivery {
        let deliveries = self.deliveries();
        let found = deliveries.iter().find(|delivery| wanted(&delivery.message));
        match found {
            Some(delivery) => delivery.clone(),
            None => panic!("no such message was delivered; these were:\n{}", list(&deliveries)),
        }
    }

    /// Panics unless exactly these messages were delivered, each once, in any order.
    #[track_caller]
    pub fn assert_delivered_once(&self, ids: &[MessageId]) {
        let (mut delivered, mut expected) = (self.ids(), ids.to_vec());
        delivered.sort();
        expected.sort();
        assert!(
            delivered == expected,
            "{} messages should have been delivered once each; these were:\n{}",
            ids.len(),
            list(&self.deliveries())
        );
    }

    /// Panics unless the messages were first delivered in the order in which `enqueued` has them, key by key.
    /// Repetitions do not matter, nor does the order between keys.
    #[track_caller]
    pub fn assert_order_per_key(&self, enqueued: &[Message]) {
        let deliveries = self.deliveries();
        let mut places = HashMap::new();
        for (place, delivery) in deliveries.iter().enumerate() {
            places.entry(delivery.message.id).or_insert(place);
        }
        let mut latest: HashMap<(&str, &str), (usize, MessageId)> = HashMap::new();
        for message in enqueued {
            let (Some(lane), Some(&place)) = (message.lane(), places.get(&message.id)) else {
                continue;
            };
            if let Some((before, earlier)) = latest.insert(lane, (place, message.id)) {
                assert!(
                    before < place,
                    "{} was delivered before {earlier} of the same key {lane:?}:\n{}",
                    message.id,
                    list(&deliveries)
                );
            }
        }
    }
}

impl Default for RecordingPublisher {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Publisher for RecordingPublisher {
    async fn publish(&self, batch: Batch, report: Report) {
        for delivery in &batch.deliveries {
            let place = delivery.place;
            if batch.may_send(place) {
                self.record.send_modify(|record| record.push(delivery.clone()));
                report.delivered(place);
            } else {
                report.outcome(place, Outcome::NotAttempted);
            }
        }
    }

    fn name(&self) -> &'static str {
        "recording"
    }
}

fn list(deliveries: &[Delivery]) -> String {
    let line = |delivery: &Delivery| {
        let message = &delivery.message;
        let key = message.ordering_key.as_deref().unwrap_or("-");
        format!(
            "  {} {} key {key} attempt {}\n",
            message.id, message.topic, delivery.attempt
        )
    };
    if deliveries.is_empty() {
        return "  (none)".to_owned();
    }
    deliveries.iter().map(line).collect()
}
