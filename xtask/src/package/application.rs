//! An application on the packages of Posthaste: it enqueues in a transaction of its own and delivers.

use std::sync::{Arc, Mutex};

use posthaste::core::store::SchemaStore;
use posthaste::publishers::Callback;
use posthaste::relay::Relay;
use posthaste::sqlite::SqliteStore;
use posthaste::{Event, OutboxOptions};
use posthaste_testkit::assert_enqueued;

#[derive(serde::Serialize)]
struct OrderPaid {
    order_id: u32,
}

#[derive(Event)]
enum ShopEvent {
    #[event(type = "acme.order.paid.v1", aggregate = "Order", id = order_id)]
    OrderPaid(OrderPaid),
}

// What needs a server is only linked.
#[allow(unused_imports, reason = "they only have to be there")]
use posthaste::{consumer::Consumer, kafka::Connection, mysql::MySqlStore, postgres::PostgresStore};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::temp_dir().join(format!("posthaste-packages-{}.db", std::process::id()));
    let store = SqliteStore::connect(&file).await?;
    store.migrate().await?;
    let outbox = store.outbox(OutboxOptions::default());

    let mut tx = store.pool().begin_with("BEGIN IMMEDIATE").await?;
    outbox.enqueue(&mut tx, ShopEvent::OrderPaid(OrderPaid { order_id: 42 })).await?;
    tx.commit().await?;
    assert_enqueued(&store, |message| message.payload == r#"{"order_id":42}"#).await;

    let delivered = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&delivered);
    let publisher = Callback::new(move |delivery| {
        seen.lock().unwrap().push(delivery.message.topic.to_string());
        async { Ok(()) }
    });
    Relay::new(store.clone(), publisher).drain().await?;
    store.pool().close().await;
    for ending in ["", "-shm", "-wal"] {
        let _ = std::fs::remove_file(format!("{}{ending}", file.display()));
    }
    assert_eq!(delivered.lock().unwrap().len(), 1);
    println!("delivered: {:?}", delivered.lock().unwrap());
    Ok(())
}
