//! A drain of a log delivers all that is due, also what the log's reader looks at from time to time only.

use std::time::Duration;

use chrono::Utc;
use posthaste_core::Message;
use posthaste_postgres::PostgresLogStore;
use posthaste_relay::{Relay, RelayConfig, RelayReport};
use posthaste_testkit::RecordingPublisher;
use tokio::time::sleep;

use crate::fixture::Log;

/// With a reader that looks at failed rows no more often than it does by default.
async fn drain(log: &Log) -> (RelayReport, Vec<String>) {
    let store = PostgresLogStore::new(log.pool.clone(), log.store.map().clone()).unwrap();
    let broker = RecordingPublisher::new();
    let relay = Relay::new(store, broker.clone()).config(RelayConfig::default());
    let report = relay.drain().await.unwrap();
    let payload = |message: &Message| String::from_utf8(message.payload.to_vec()).unwrap();
    let sent = broker
        .deliveries()
        .iter()
        .map(|delivery| payload(&delivery.message))
        .collect();
    (report, sent)
}

fn assert_complete(report: &RelayReport, delivered: u64) {
    assert_eq!((report.delivered, report.remaining), (delivered, 0), "{report:?}");
    assert!(report.is_complete());
}

#[tokio::test]
async fn messages_with_a_time_of_their_own_are_delivered_with_those_around_them() {
    let log = Log::fresh().await;
    let keyed = |payload: &str| Message::new("orders", payload.to_owned()).key("k");
    for n in ["1", "2", "3"] {
        let soon = Utc::now() + Duration::from_millis(100);
        log.enqueue(vec![keyed(n), keyed(&format!("{n}, later")).not_before(soon)])
            .await;
    }
    sleep(Duration::from_millis(200)).await;
    let (report, sent) = drain(&log).await;
    assert_complete(&report, 6);
    assert_eq!(sent, ["1", "1, later", "2", "2, later", "3", "3, later"]);
}

/// As they stand after a move from the queue.
#[tokio::test]
async fn messages_behind_retries_that_are_due_are_delivered_with_them() {
    let log = Log::fresh().await;
    let fresh = "insert into log (topic, ordering_key, payload) select 'orders', 'k' || n % 50, '' from generate_series(1, 250) n";
    log.run(fresh).await;
    log.run(
        "insert into log_failed (shard, log_id, event_id, topic, ordering_key, payload, attempts)
         select 0, nextval('log_shard_0_seq'), gen_random_uuid(), 'orders', 'k' || n % 50, '', (n <= 50)::integer
         from generate_series(1, 500) n",
    )
    .await;
    log.run(fresh).await;
    let (report, _) = drain(&log).await;
    assert_complete(&report, 1_000);
}

#[tokio::test]
async fn shards_that_may_be_read_after_others_are_read_by_the_same_drain() {
    let log = Log::fresh().await;
    let messages = |n: usize| (0..n).map(|n| Message::new("orders", "").key(n.to_string())).collect();
    log.enqueue(messages(30)).await;
    for shards in [3, 4] {
        log.store.tables().unwrap().raise_shards(shards).await.unwrap();
        log.enqueue(messages(30)).await;
    }
    let (report, _) = drain(&log).await;
    assert_complete(&report, 90);
}
