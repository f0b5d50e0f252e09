//! Assertions about an outbox, for tests of applications.

use std::fmt::Write;

use posthaste_core::lifecycle::State;
use posthaste_core::store::{Filter, Record};
use posthaste_core::{AdminStore, Message};
use serde_json::Value;

/// All messages that wait to be sent, by sequence.
///
/// # Panics
/// If the store cannot be read.
pub async fn enqueued<S: AdminStore>(store: &S) -> Vec<Record> {
    let filter = Filter {
        state: Some(State::Pending),
        ..Filter::default()
    };
    let (mut rows, mut after) = (Vec::new(), None);
    loop {
        let page = store.list(&filter, after, 1_000).await;
        let page = page.unwrap_or_else(|error| panic!("the outbox cannot be read: {error}"));
        let Some(last) = page.last() else { return rows };
        after = Some(last.message.id);
        rows.extend(page);
    }
}

/// Checks that a message for which `wanted` holds waits to be sent, and returns the first one.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// # use posthaste_core::{Message, OutboxOptions, store::ProducerStore};
/// # use posthaste_testing::{MemoryStore, assert_enqueued};
/// # let store = MemoryStore::new();
/// # let messages = vec![Message::new("order-events", "{}").key("42")];
/// # store.enqueue_and_commit(&OutboxOptions::default(), messages).await.unwrap();
/// assert_enqueued(&store, |m| m.topic == "order-events" && m.ordering_key.as_deref() == Some("42")).await;
/// # }
/// ```
///
/// For events with a type name see [`assert_event`].
///
/// # Panics
/// If there is none, with a list of what is there.
pub async fn assert_enqueued<S: AdminStore>(store: &S, wanted: impl Fn(&Message) -> bool) -> Record {
    let rows = enqueued(store).await;
    let found = rows.iter().find(|row| wanted(&row.message));
    match found {
        Some(row) => row.clone(),
        None => panic!("no such message is enqueued; {}", list(&rows)),
    }
}

/// Checks that an event of this type whose payload is JSON for which `wanted` holds waits to be sent, and returns the first
/// one.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// # use posthaste_core::{Message, OutboxOptions, store::ProducerStore};
/// # use posthaste_testing::{MemoryStore, assert_event};
/// # let store = MemoryStore::new();
/// # let messages = vec![Message::new("order-events", r#"{"orderId":42}"#).event_type("acme.order.created.v1")];
/// # store.enqueue_and_commit(&OutboxOptions::default(), messages).await.unwrap();
/// assert_event(&store, "acme.order.created.v1", |order| order["orderId"] == 42).await;
/// # }
/// ```
///
/// # Panics
/// If there is none, with a list of what is there.
pub async fn assert_event<S: AdminStore>(store: &S, event_type: &str, wanted: impl Fn(&Value) -> bool) -> Record {
    let rows = enqueued(store).await;
    let of_type = |row: &&Record| row.message.event_type.as_deref() == Some(event_type);
    let fits = |row: &&Record| serde_json::from_slice(&row.message.payload).is_ok_and(|payload| wanted(&payload));
    let alike = rows.iter().filter(of_type).count();
    match rows.iter().filter(of_type).find(fits) {
        Some(row) => row.clone(),
        None if alike == 0 => panic!("no event of the type `{event_type}` is enqueued; {}", list(&rows)),
        None => panic!(
            "{alike} of the type `{event_type}` are enqueued, and none has the payload that is wanted; {}",
            list(&rows)
        ),
    }
}

/// Checks how many messages wait to be sent.
///
/// # Panics
/// If there are more or fewer, with a list of what is there.
pub async fn assert_enqueued_count<S: AdminStore>(store: &S, count: usize) {
    let rows = enqueued(store).await;
    assert!(rows.len() == count, "{count} should be enqueued; {}", list(&rows));
}

/// Checks that no message for which `unwanted` holds waits to be sent.
///
/// # Panics
/// If there is one, with a list of what is there.
pub async fn assert_not_enqueued<S: AdminStore>(store: &S, unwanted: impl Fn(&Message) -> bool) {
    let rows = enqueued(store).await;
    let found = rows.iter().find(|row| unwanted(&row.message));
    if let Some(row) = found {
        panic!("{} should not be enqueued; {}", row.message.id, list(&rows));
    }
}

fn list(rows: &[Record]) -> String {
    /// Enough to recognise a message by; payloads may be large.
    const PREVIEW: usize = 80;
    if rows.is_empty() {
        return "the outbox has no pending messages".to_owned();
    }
    let mut text = format!("the outbox has {} pending:", rows.len());
    for row in rows {
        let message = &row.message;
        let payload = String::from_utf8_lossy(&message.payload);
        let preview: String = payload.chars().take(PREVIEW).collect();
        let more = if preview.len() < payload.len() { "…" } else { "" };
        let _ = write!(
            text,
            "\n  {} topic {:?} key {:?} type {:?} payload {preview}{more}",
            message.id, message.topic, message.ordering_key, message.event_type
        );
    }
    text
}
