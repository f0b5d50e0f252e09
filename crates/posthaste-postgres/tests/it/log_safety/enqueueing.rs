//! What an application appends is what is delivered, or it is refused by name.

use posthaste_core::{Message, OutboxOptions};
use posthaste_postgres::PostgresLogStore;
use posthaste_sql::TableMap;
use posthaste_sql::table::BuiltinMap;

use crate::support::log::{Log, Work, request};

fn message(payload: &[u8]) -> Message {
    Message::new("order-events", payload.to_vec())
        .event_type("loopers.order.created.v1")
        .aggregate("Order", "7")
        .source("commerce-api")
}

#[tokio::test]
async fn bytes_are_stored_as_they_are() {
    let log = Log::fresh(4).await;
    log.run(
        "alter table outbox alter payload type bytea using payload::text::bytea;
         alter table outbox_failed alter payload type bytea using payload::text::bytea",
    )
    .await;
    let toml = BuiltinMap::find("commerce").unwrap().toml;
    let toml = toml.replace(
        "payload = { column = \"payload\", kind = \"jsonb\" }",
        "payload = { column = \"payload\", kind = \"bytes\" }",
    );
    let store = PostgresLogStore::new(log.pool.clone(), TableMap::from_toml(&toml).unwrap()).unwrap();
    let payloads: [&[u8]; 5] = [
        br#"{"path":"C:\\temp"}"#,
        br"\x4142",
        b"{\"text\":\"a\\nb\"}",
        &[0, 1, 2, 0xc0, 0xff, b'\\', b'\''],
        b"",
    ];
    let outbox = store.outbox(OutboxOptions::default());
    let mut tx = log.pool.begin().await.unwrap();
    for payload in payloads {
        outbox.enqueue(&mut tx, message(payload)).await.unwrap();
    }
    outbox.enqueue_all(&mut tx, payloads.map(message)).await.unwrap();
    tx.commit().await.unwrap();
    let work = Work::claim(&store, &request(20)).await;
    let stored: Vec<&[u8]> = work
        .claim
        .messages
        .iter()
        .map(|claimed| &claimed.message.payload[..])
        .collect();
    assert_eq!(stored, [payloads, payloads].concat());
}

#[tokio::test]
async fn what_the_log_has_no_place_for_is_refused_by_name_and_the_transaction_goes_on() {
    let log = Log::fresh(4).await;
    let store = log.store();
    let outbox = store.outbox(OutboxOptions::default());
    let mut tx = log.pool.begin().await.unwrap();
    let mut elsewhere = message(b"{}");
    elsewhere.topic = "billing-events".into();
    let mut markdown = message(b"{}");
    markdown.content_type = "text/markdown".into();
    let mut other = message(b"{}");
    other.namespace = Some("other".into());
    for (field, refused) in [
        ("topic", elsewhere),
        ("content_type", markdown),
        ("namespace", other),
        ("dedupe_key", message(b"{}").dedupe_key("k")),
        ("tenant", message(b"{}").tenant("t")),
        ("headers", message(b"{}").header("h", "v")),
        ("payload", message(b"not json")),
        ("ordering_key", message(b"{}").key("other than the aggregate")),
    ] {
        let error = outbox.enqueue(&mut tx, refused).await.unwrap_err().to_string();
        assert!(error.contains(field), "{field}: {error}");
    }
    let id = outbox.enqueue(&mut tx, message(b"{}")).await.unwrap().id();
    tx.commit().await.unwrap();
    assert_eq!(Work::claim(&store, &request(10)).await.events(), [id.to_string()]);
}
