//! A drain of a log delivers all that is due, also what the log's reader looks at from time to time only.

use std::time::Duration;

use chrono::Utc;
use posthaste_core::store::SchemaStore;
use posthaste_core::{Message, Outbox as _, OutboxOptions};
use posthaste_relay::{Relay, RelayReport};
use posthaste_sqlite::SqliteLogStore;
use posthaste_testkit::RecordingPublisher;
use sqlx::Executor;
use tokio::time::sleep;

use crate::support;

async fn drain(store: &SqliteLogStore) -> RelayReport {
    let relay = Relay::new(store.clone(), RecordingPublisher::new());
    relay.drain().await.unwrap()
}

fn assert_complete(report: &RelayReport, delivered: u64) {
    assert_eq!((report.delivered, report.remaining), (delivered, 0), "{report:?}");
    assert!(report.is_complete());
}

#[tokio::test]
async fn messages_with_a_time_of_their_own_are_delivered_with_those_around_them() {
    let (pool, _directory) = support::pool(5).await;
    let store = SqliteLogStore::new(pool);
    store.migrate().await.unwrap();
    let outbox = store.outbox(OutboxOptions::default());
    for n in ["1", "2", "3"] {
        let keyed = |payload: &str| Message::new("orders", payload.to_owned()).key("k");
        let soon = Utc::now() + Duration::from_millis(100);
        for message in [keyed(n), keyed(&format!("{n}, later")).not_before(soon)] {
            let mut tx = outbox.begin().await.unwrap();
            outbox.enqueue(&mut tx, message).await.unwrap();
            outbox.commit(tx).await.unwrap();
        }
    }
    sleep(Duration::from_millis(200)).await;
    assert_complete(&drain(&store).await, 6);
}

/// As they stand after a move from the queue.
#[tokio::test]
async fn messages_behind_retries_that_are_due_are_delivered_with_them() {
    let (pool, _directory) = support::pool(5).await;
    let store = SqliteLogStore::new(pool);
    store.migrate().await.unwrap();
    let insert = "with recursive n (i) as (select 1 union all select i + 1 from n where i < 500)
        insert into posthaste_log (topic, ordering_key, payload) select 'orders', 'k' || (i % 50), x'' from n;
        insert into posthaste_log_failed (log_id, id, topic, ordering_key, content_type, payload, next_attempt_at, created_at,
            attempts)
        select seq, id, topic, ordering_key, content_type, payload, 0, 0, 1 from posthaste_log where seq <= 50";
    store.pool().execute(sqlx::raw_sql(insert)).await.unwrap();
    assert_complete(&drain(&store).await, 500);
}
