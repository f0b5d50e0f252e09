//! Enqueueing on every kind of connection, and what a failure leaves behind.

use posthaste_core::store::Filter;
use posthaste_core::{AdminStore, Enqueued, Message, OutboxOptions};
use posthaste_mysql::MySqlStore;
use sqlx::Executor;

use crate::support;

async fn count(store: &MySqlStore) -> usize {
    store.list(&Filter::default(), None, 1000).await.unwrap().len()
}

fn keyed(topic: &str, key: &str) -> Message {
    Message::new(topic, "x").dedupe_key(key)
}

/// Proves A2, B2.
#[tokio::test]
async fn transactions_connections_and_pool_connections_are_served() {
    let store = support::store(4).await;
    let outbox = store.outbox(OutboxOptions::default());

    let mut tx = store.pool().begin().await.unwrap();
    outbox.enqueue(&mut tx, keyed("t", "1")).await.unwrap();
    outbox.commit(tx).await.unwrap();

    let mut pooled = store.pool().acquire().await.unwrap();
    outbox.enqueue(&mut pooled, keyed("t", "2")).await.unwrap();
    assert_eq!(count(&store).await, 2, "outside a transaction it is committed at once");

    // A transaction that the caller began by hand, of which the driver does not know.
    pooled.execute("start transaction").await.unwrap();
    outbox.enqueue(&mut *pooled, keyed("t", "3")).await.unwrap();
    outbox
        .enqueue_all(&mut *pooled, [keyed("t", "4"), keyed("t", "5")])
        .await
        .unwrap();
    assert_eq!(count(&store).await, 2);
    pooled.execute("rollback").await.unwrap();
    assert_eq!(count(&store).await, 2);
    assert!(
        outbox.enqueue(&mut pooled, keyed("t", "3")).await.unwrap().is_new(),
        "its key is free too"
    );
}

/// Proves B4.
#[tokio::test]
async fn what_the_database_refuses_is_undone_alone_and_holds_no_key() {
    let store = support::store(2).await;
    support::run(
        store.pool(),
        "alter table posthaste_outbox add constraint check (topic <> 'bad')",
    )
    .await;
    let outbox = store.outbox(OutboxOptions::default());
    let mut tx = store.pool().begin().await.unwrap();
    outbox.enqueue(&mut tx, keyed("t", "first")).await.unwrap();
    outbox
        .enqueue_all(&mut tx, [keyed("t", "a"), keyed("bad", "b")])
        .await
        .unwrap_err();
    tx.commit().await.unwrap();
    assert_eq!(count(&store).await, 1, "all or nothing");
    let mut conn = store.pool().acquire().await.unwrap();
    assert!(outbox.enqueue(&mut conn, keyed("t", "a")).await.unwrap().is_new());
    assert!(!outbox.enqueue(&mut conn, keyed("t", "first")).await.unwrap().is_new());
    outbox
        .enqueue_all(&mut conn, [keyed("t", "c"), keyed("bad", "d")])
        .await
        .unwrap_err();
    assert!(
        outbox.enqueue(&mut conn, keyed("t", "c")).await.unwrap().is_new(),
        "also without a transaction"
    );
}

#[tokio::test]
async fn more_than_one_packet_is_sent_in_parts_and_in_order() {
    let store = support::store(2).await;
    let outbox = store.outbox(OutboxOptions::default());
    let messages: Vec<_> = (0..20_u8).map(|n| Message::new("t", vec![n; 1 << 20])).collect();
    let ids: Vec<_> = messages.iter().map(|message| message.id).collect();
    let mut conn = store.pool().acquire().await.unwrap();
    let outcomes = outbox.enqueue_all(&mut conn, messages).await.unwrap();
    assert_eq!(
        outcomes,
        ids.iter().copied().map(Enqueued::Inserted).collect::<Vec<_>>()
    );
    let rows = store.list(&Filter::default(), None, 100).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.message.id).collect::<Vec<_>>(), ids);
    assert!(
        rows.iter()
            .zip(0..)
            .all(|(row, n)| row.message.payload.iter().all(|byte| *byte == n))
    );
}

/// Texts are compared with spaces at their ends ignored; keys are not.
#[tokio::test]
async fn keys_that_differ_in_spaces_or_case_are_different() {
    let store = support::store(2).await;
    let outbox = store.outbox(OutboxOptions::default());
    let mut conn = store.pool().acquire().await.unwrap();
    for key in ["k", "k ", "K", " k", "ḱ"] {
        assert!(
            outbox.enqueue(&mut conn, keyed("t", key)).await.unwrap().is_new(),
            "{key:?}"
        );
    }
}

/// The order of one call is that of its rows, whatever their ids are.
#[tokio::test]
async fn a_call_keeps_its_order_in_a_mapped_table() {
    let pool = support::pool(2).await;
    support::run(
        &pool,
        "create table box (id char(36) primary key, k varchar(20), payload text not null, status varchar(10) not null,
            created_at datetime(6) not null)",
    )
    .await;
    let map = r#"
        name = "box"
        order = ["created_at", "id"]
        topic = { fixed = "t" }
        tables = { outbox = "box" }
        states = { pending = "NEW", delivered = "SENT", dead = "DEAD" }
        [columns]
        id = { column = "id", kind = "text" }
        ordering_key = "k"
        payload = { column = "payload", kind = "text" }
        status = "status"
        created_at = { column = "created_at", kind = "timestamp" }
    "#;
    let map = posthaste_sql::TableMap::from_toml(map).unwrap();
    let store = MySqlStore::with_map(pool, map).unwrap();
    let outbox = store.outbox(OutboxOptions::default());
    let ids: Vec<_> = (0..100_u128).map(|n| uuid::Uuid::from_u128(u128::MAX - n)).collect();
    let messages = ids.iter().map(|id| {
        let mut message = Message::new("t", "x").key("k");
        message.id = (*id).into();
        message
    });
    let mut tx = store.pool().begin().await.unwrap();
    outbox.enqueue_all(&mut tx, messages.collect::<Vec<_>>()).await.unwrap();
    tx.commit().await.unwrap();
    let rows = store.list(&Filter::default(), None, 1_000).await.unwrap();
    let listed: Vec<_> = rows.iter().map(|row| row.message.id.to_string()).collect();
    let expected: Vec<_> = ids.iter().map(ToString::to_string).collect();
    assert_eq!(listed, expected);
}
