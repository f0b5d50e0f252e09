//! Delivering what is due, in a test.

use posthaste_core::{Message, Publisher, RelayStore};
use posthaste_relay::{Relay, RelayReport};

use crate::RecordingPublisher;

/// Runs a relay with default settings until nothing is due any more. Messages that wait for a retry stay behind; let
/// time pass and drain again.
///
/// # Panics
/// If the relay cannot run.
pub async fn drain(store: impl RelayStore, publisher: impl Publisher) -> RelayReport {
    let report = Relay::new(store, publisher).drain().await;
    report.unwrap_or_else(|error| panic!("the outbox could not be drained: {error}"))
}

/// Delivers what is due, and returns it in the order of delivery: what a broker would have got.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// # use posthaste_core::{Message, OutboxOptions, store::ProducerStore};
/// # use posthaste_testing::{MemoryStore, assert_enqueued_count, deliver_all};
/// # let store = MemoryStore::new();
/// # let messages = vec![Message::new("order-events", "1"), Message::new("order-events", "2")];
/// # store.enqueue_and_commit(&OutboxOptions::default(), messages).await.unwrap();
/// let delivered = deliver_all(&store).await;
/// assert_eq!(delivered.len(), 2);
/// assert_enqueued_count(&store, 0).await;
/// # }
/// ```
///
/// # Panics
/// If the relay cannot run.
pub async fn deliver_all<S: RelayStore + Clone>(store: &S) -> Vec<Message> {
    let broker = RecordingPublisher::new();
    drain(store.clone(), broker.clone()).await;
    let deliveries = broker.deliveries().into_iter();
    deliveries.map(|delivery| delivery.message).collect()
}
