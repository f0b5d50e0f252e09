//! The application's side: appending, and effects that are had once.

use std::time::Duration;

use posthaste_core::store::ProducerStore;
use posthaste_core::{Inbox, InboxStore, Message, OutboxOptions};
use posthaste_postgres::PostgresHandled;
use sqlx::Executor;
use tokio_postgres::NoTls;

use crate::support;
use crate::support::log::{Log, Work, request};

/// Proves C4.
#[tokio::test(flavor = "multi_thread")]
async fn an_application_appends_in_its_own_transaction() {
    let log = Log::fresh(4).await;
    let store = log.store();
    let options = OutboxOptions::new().source("commerce-api");
    let outbox = store.outbox(options.clone());
    let message = || {
        Message::json("order-events", &serde_json::json!({"orderId": 7}))
            .unwrap()
            .event_type("loopers.order.created.v1")
            .aggregate("Order", "7")
            .key("7")
    };
    let mut undone = log.pool.begin().await.unwrap();
    outbox.enqueue(&mut undone, message()).await.unwrap();
    undone.rollback().await.unwrap();
    let mut tx = log.pool.begin().await.unwrap();
    let id = outbox.enqueue(&mut tx, message()).await.unwrap().id();
    let refused = outbox
        .enqueue(&mut tx, message().dedupe_key("k"))
        .await
        .unwrap_err()
        .to_string();
    assert!(refused.contains("dedupe_key"), "{refused}");
    tx.commit().await.unwrap();
    store.enqueue_and_commit(&options, vec![message()]).await.unwrap();
    let work = Work::claim(&store, &request(10)).await;
    assert_eq!(work.events().len(), 2);
    assert_eq!(work.events()[0], id.to_string());
    assert_eq!(work.claim.messages[0].message.source.as_deref(), Some("commerce-api"));
    assert_eq!(work.claim.messages[0].message.topic, "order-events");
}

/// Proves C4.
#[tokio::test(flavor = "multi_thread")]
async fn a_tokio_postgres_transaction_appends_as_well() {
    let log = Log::fresh(4).await;
    let store = log.store();
    let outbox = store.outbox(OutboxOptions::new().source("commerce-api"));
    let (mut client, connection) = tokio_postgres::connect(&support::server_url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    let schema = log.texts("select current_schema()::text").await.remove(0);
    client
        .batch_execute(&format!("set search_path = {schema}"))
        .await
        .unwrap();
    let message = |order: &str| {
        let message = Message::new("order-events", "{}").event_type("loopers.order.created.v1");
        message.aggregate("Order", order)
    };
    let mut undone = client.transaction().await.unwrap();
    outbox.enqueue(&mut undone, message("1")).await.unwrap();
    undone.rollback().await.unwrap();
    let mut tx = client.transaction().await.unwrap();
    let written = outbox.enqueue_all(&mut tx, ["2", "3"].map(message)).await.unwrap();
    tx.commit().await.unwrap();
    let written: Vec<_> = written.iter().map(|one| one.id().to_string()).collect();
    assert_eq!(Work::claim(&store, &request(10)).await.events(), written);
}

/// Proves C16.
#[tokio::test(flavor = "multi_thread")]
async fn effects_are_recorded_once_by_their_three_parts_and_forgotten_after_a_week() {
    let log = Log::fresh(4).await;
    let handled = PostgresHandled::new(log.pool.clone(), &log.map).unwrap();
    let record = async |key: &str| {
        let mut tx = handled.begin().await.unwrap();
        let new = handled.record(&mut tx, key).await.unwrap();
        handled.commit(tx).await.unwrap();
        new
    };
    assert!(record("Order/42/SALES_COUNT_INCREASED").await);
    assert!(!record("Order/42/SALES_COUNT_INCREASED").await);
    assert!(record("ProductView/7_a/b_c/VIEW_COUNT_INCREASED").await);
    let rows =
        log.texts("select aggregate_type || ' ' || aggregate_id || ' ' || action from event_handled order by id");
    assert_eq!(
        rows.await,
        [
            "Order 42 SALES_COUNT_INCREASED",
            "ProductView 7_a/b_c VIEW_COUNT_INCREASED"
        ]
    );
    let mut dropped = handled.begin().await.unwrap();
    assert!(handled.record(&mut dropped, "Order/43/X").await.unwrap());
    drop(dropped);
    let mut careless = handled.begin().await.unwrap();
    assert!(handled.record(&mut careless, "Order/43/X").await.unwrap());
    careless.execute("select 1 / 0").await.unwrap_err();
    let lost = handled.commit(careless).await.unwrap_err().to_string();
    assert!(lost.contains("nothing of it was kept"), "{lost}");
    assert!(record("Order/43/X").await, "a rollback forgets, by whomever");
    let mut tx = handled.begin().await.unwrap();
    assert!(handled.record(&mut tx, "no parts").await.is_err());
    drop(tx);
    log.run("update event_handled set handled_at = now() - interval '8 days' where aggregate_id <> '43'")
        .await;
    let week = Duration::from_hours(7 * 24);
    assert_eq!(handled.purge(week, 1).await.unwrap(), 1, "in batches");
    assert_eq!(handled.purge(week, 10).await.unwrap(), 1);
    assert_eq!(log.texts("select aggregate_id from event_handled").await, ["43"]);
}
