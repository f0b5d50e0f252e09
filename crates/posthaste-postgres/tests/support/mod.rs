//! A migrated outbox of its own for every test, on the server that `cargo xtask test` starts.

pub mod log;
pub mod native;
#[allow(dead_code, reason = "each test target uses its own part of this module")]
pub mod proxy;

use posthaste_core::Message;
use posthaste_core::store::SchemaStore;
use posthaste_postgres::PostgresStore;
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

/// The address of the test server.
pub fn server_url() -> String {
    std::env::var("POSTHASTE_TEST_POSTGRES_URL")
        .expect("POSTHASTE_TEST_POSTGRES_URL names no server: run these tests with `cargo xtask test`")
}

/// A schema that no other test uses.
pub fn fresh_schema() -> String {
    format!("t_{}", uuid::Uuid::new_v4().simple())
}

/// A pool on the test server.
#[allow(dead_code, reason = "each test target uses its own part of this module")]
pub async fn pool(connections: u32) -> PgPool {
    PgPoolOptions::new()
        .max_connections(connections)
        .connect(&server_url())
        .await
        .expect("the test server is up")
}

/// A migrated store in a fresh schema.
#[allow(dead_code, reason = "each test target uses its own part of this module")]
pub async fn store(connections: u32) -> PostgresStore {
    let store = PostgresStore::in_schema(pool(connections).await, &fresh_schema()).expect("a valid name");
    store.migrate().await.expect("migrations apply");
    store
}

/// Calls of three messages each, of which one has something that the other two have not: nothing but its number is in its
/// payload. What all messages of a call have in common goes to the database once.
#[allow(dead_code, reason = "each test target uses its own part of this module")]
pub fn calls_in_which_one_differs() -> Vec<Vec<Message>> {
    let common = |n: usize| {
        Message::new("orders", n.to_string())
            .key("k")
            .tenant("acme")
            .event_type("acme.order.created.v1")
            .source("urn:shop")
            .aggregate("Order", "7")
            .header("a", "b")
            .content_type("text/plain")
    };
    let changes: [fn(&mut Message); 16] = [
        |message| message.topic = "invoices".into(),
        |message| message.ordering_key = Some("other".into()),
        |message| message.ordering_key = None,
        |message| message.tenant = Some("other".into()),
        |message| message.tenant = None,
        |message| message.event_type = Some("acme.order.paid.v1".into()),
        |message| message.event_type = None,
        |message| message.source = Some("urn:bank".into()),
        |message| message.aggregate_type = Some("Invoice".into()),
        |message| message.aggregate_type = None,
        |message| message.aggregate_id = Some("8".into()),
        |message| message.aggregate_id = None,
        |message| message.content_type = "application/json".into(),
        |message| drop(message.headers.insert("a".to_owned(), "c".to_owned())),
        |message| message.headers.clear(),
        |_| {},
    ];
    let mut calls: Vec<Vec<Message>> = Vec::new();
    for change in changes {
        for odd in 0..3 {
            let first = calls.len() * 3;
            let mut messages: Vec<_> = (first..first + 3).map(common).collect();
            change(&mut messages[odd]);
            calls.push(messages);
        }
    }
    calls
}

/// Whether what was stored is what was given, whatever id its row has and with its event's.
#[allow(dead_code, reason = "each test target uses its own part of this module")]
pub fn assert_as_given(stored: &Message, given: &Message) {
    assert_eq!(stored.effective_event_id(), given.id.to_string());
    let (id, event_id, namespace) = (stored.id, stored.event_id.clone(), stored.namespace.clone());
    let given = Message {
        id,
        event_id,
        namespace,
        ..given.clone()
    };
    assert_eq!(*stored, given);
}
