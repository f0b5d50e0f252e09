//! The kit as an application's tests use it.

use std::time::Duration;

use posthaste_core::lifecycle::State;
use posthaste_core::store::{Filter, ProducerStore};
use posthaste_core::{AdminStore, Handled, Inbox, InboxError, Message, MessageId, OutboxOptions};
use posthaste_testing::{
    FaultyPublisher, MemoryStore, RecordingPublisher, assert_enqueued, assert_not_enqueued, drain, enqueued,
};

async fn enqueue(store: &MemoryStore, messages: &[Message]) -> Vec<MessageId> {
    store
        .enqueue_and_commit(&OutboxOptions::default(), messages.to_vec())
        .await
        .unwrap();
    messages.iter().map(|message| message.id).collect()
}

#[tokio::test]
async fn a_message_is_enqueued_once_its_transaction_is_committed() {
    let store = MemoryStore::new();
    let mut tx = store.begin();
    tx.enqueue([Message::new("orders", "{}")], &OutboxOptions::default())
        .await
        .unwrap();
    assert_not_enqueued(&store, |_| true).await;
    tx.commit();
    let row = assert_enqueued(&store, |message| message.topic == "orders").await;
    assert_eq!(row.state, State::Pending);
}

#[tokio::test]
#[should_panic(expected = r#"the outbox has 1 pending:
"#)]
async fn a_missing_message_is_reported_with_what_is_there() {
    let store = MemoryStore::new();
    enqueue(&store, &[Message::new("orders", "{}")]).await;
    assert_enqueued(&store, |message| message.topic == "payments").await;
}

#[tokio::test]
async fn every_page_of_a_long_outbox_is_searched() {
    let store = MemoryStore::new();
    let messages: Vec<_> = (0..2_500).map(|n| Message::new("orders", n.to_string())).collect();
    enqueue(&store, &messages).await;
    assert_eq!(enqueued(&store).await.len(), 2_500);
    assert_enqueued(&store, |message| message.payload == "2499").await;
}

/// Proves A10, B10.
#[tokio::test(start_paused = true)]
async fn an_outage_delays_and_loses_nothing() {
    let store = MemoryStore::new();
    let broker = FaultyPublisher::new(RecordingPublisher::new());
    let messages: Vec<_> = (0..30)
        .map(|n| Message::new("orders", "{}").key((n % 3).to_string()))
        .collect();
    let ids = enqueue(&store, &messages).await;
    broker.down();
    drain(store.clone(), broker.clone()).await;
    assert_eq!(broker.inner().ids(), []);
    broker.up();
    broker.lose_acknowledgements(1);
    for _ in 0..10 {
        store.clock().advance(Duration::from_mins(10));
        drain(store.clone(), broker.clone()).await;
    }
    let mut delivered = broker.inner().first_deliveries();
    delivered.sort();
    assert_eq!(delivered, ids, "each at least once");
    assert_eq!(broker.inner().ids().len(), ids.len() + 1, "and one of them twice");
    broker.inner().assert_order_per_key(&messages);
    assert_not_enqueued(&store, |_| true).await;
}

/// Proves D3.
#[tokio::test(start_paused = true)]
async fn a_corrupt_payload_is_never_sent() {
    let (store, broker) = (MemoryStore::new(), RecordingPublisher::new());
    let ids = enqueue(&store, &[Message::new("orders", "1"), Message::new("orders", "2")]).await;
    store.corrupt_payload(ids[0]);
    let report = drain(store.clone(), broker.clone()).await;
    assert_eq!((report.delivered, report.died), (1, 1));
    assert_eq!(broker.ids(), ids[1..]);
    let dead = Filter {
        state: Some(State::Dead),
        ..Filter::default()
    };
    assert_eq!(store.list(&dead, None, 10).await.unwrap()[0].message.id, ids[0]);
}

/// Proves pitfall 20.
#[tokio::test]
async fn a_handler_runs_once_and_a_failed_one_runs_again() {
    let store = MemoryStore::new();
    let inbox = store.inbox("statistics");

    let mut tx = store.begin();
    let failed = inbox.once(&mut tx, "event 1", async |tx| {
        tx.write_business_row("lost");
        Err::<(), _>("out of stock")
    });
    assert!(matches!(failed.await, Err(InboxError::Handler("out of stock"))));
    tx.rollback();

    let mut tx = store.begin();
    let handled = inbox.once(&mut tx, "event 1", async |tx| {
        tx.write_business_row("counted");
        Ok::<_, &str>(7)
    });
    assert_eq!(handled.await.unwrap(), Handled::Applied(7));
    tx.commit();

    let mut tx = store.begin();
    let again = inbox.once(&mut tx, "event 1", async |_| Ok::<_, &str>(8)).await;
    assert_eq!(again.unwrap(), Handled::Duplicate);
    assert_eq!(store.business_rows(), ["counted"]);
}
