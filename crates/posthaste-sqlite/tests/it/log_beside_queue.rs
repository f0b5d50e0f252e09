//! What a relay of the queue says of a log beside it that nobody reads.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use posthaste_core::store::OutboxStats;
use posthaste_core::{RelayStore, StoreError};
use posthaste_relay::{Relay, RelayConfig};
use posthaste_sqlite::{SqliteLogStore, SqliteStore};
use posthaste_testkit::RecordingPublisher;
use tokio_util::sync::CancellationToken;

use crate::log::{claim, enqueue, fresh, keyed, request};
use crate::log_delayed::deliver_all;
use crate::support;

/// Milliseconds since which the message waits.
const AGE: i64 = 90_000;

async fn left(log: &SqliteLogStore) -> OutboxStats {
    SqliteStore::new(log.pool().clone()).left_in_log().await.unwrap()
}

/// It has a time of its own, so that it is not in the log but beside it.
async fn enqueue_delayed(log: &SqliteLogStore) {
    let later = chrono::Utc::now() + chrono::Duration::hours(1);
    enqueue(log, [keyed("k").not_before(later)]).await;
    let age = sqlx::query("update posthaste_log_failed set created_at = created_at - ?").bind(AGE);
    age.execute(log.pool()).await.unwrap();
}

#[tokio::test]
async fn what_waits_beside_a_log_is_left_in_it_while_nobody_reads() {
    let (log, _directory) = fresh().await;
    assert_eq!(left(&log).await, OutboxStats::default());
    enqueue_delayed(&log).await;
    let found = left(&log).await;
    assert_eq!((found.pending, found.waiting, found.processing), (1, 1, 0));
    assert!(found.oldest_seconds >= 90.0, "{found:?}");
    let error = StoreError::refuse_left_in_log(&found).unwrap_err();
    assert!(error.message.contains("1 message waits in the log"), "{error}");

    assert_eq!(claim(&log, &request(10)).await, []);
    assert_eq!(left(&log).await, OutboxStats::default(), "there is a reader");
    log.close().await.unwrap();
    assert_eq!(left(&log).await.pending, 1);

    let die = sqlx::query("update posthaste_log_failed set died_at = 1");
    die.execute(log.pool()).await.unwrap();
    let found = left(&log).await;
    assert_eq!(found, OutboxStats::default(), "nobody waits for the dead");
    StoreError::refuse_left_in_log(&found).unwrap();
}

/// The last ones may have been taken by an insert that found its id there, or by rows that were removed.
#[tokio::test]
async fn numbers_without_rows_are_not_left_in_a_log() {
    for is_removed in [false, true] {
        let (log, _directory) = fresh().await;
        let first = keyed("k");
        let ids = enqueue(&log, [first.clone(), keyed("k")]).await;
        if is_removed {
            enqueue(&log, ["k", "other"].map(keyed)).await;
            let remove = sqlx::query("delete from posthaste_log where seq > 2");
            remove.execute(log.pool()).await.unwrap();
        } else {
            enqueue(&log, [first]).await;
        }
        assert_eq!(left(&log).await.pending, 2);
        assert_eq!(deliver_all(&log).await, ids);
        log.close().await.unwrap();
        let last: i64 = sqlx::query_scalar("select seq from sqlite_sequence where name = 'posthaste_log'")
            .fetch_one(log.pool())
            .await
            .unwrap();
        assert!(last > 2, "numbers were given out without a row");
        assert_eq!(left(&log).await, OutboxStats::default(), "removed: {is_removed}");
    }
}

#[tokio::test]
async fn nothing_is_left_in_a_log_that_is_not_there() {
    let queue = support::store(1).await;
    assert_eq!(queue.left_in_log().await.unwrap(), OutboxStats::default());
}

fn gauges(snapshotter: &Snapshotter) -> BTreeMap<String, f64> {
    let all = snapshotter.snapshot().into_vec().into_iter();
    let gauge = |value| match value {
        DebugValue::Gauge(value) => Some(value.into_inner()),
        DebugValue::Counter(_) | DebugValue::Histogram(_) => None,
    };
    all.filter_map(|(key, _, _, value)| Some((key.key().name().to_owned(), gauge(value)?)))
        .collect()
}

/// An alert on the age would be silent, else, while the number of messages grows.
#[test]
fn a_relay_of_the_queue_shows_how_many_messages_wait_in_the_log_and_for_how_long() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let relay = async {
        let (log, _directory) = fresh().await;
        enqueue_delayed(&log).await;
        let queue = SqliteStore::new(log.pool().clone());
        let config = RelayConfig {
            janitor_interval: Duration::from_millis(100),
            ..RelayConfig::default()
        };
        let relay = Relay::new(queue, RecordingPublisher::new()).config(config);
        let relay = tokio::spawn(relay.run_until(CancellationToken::new()));
        let begun = Instant::now();
        loop {
            let shown = gauges(&snapshotter);
            if shown.get("outbox_pending_count").is_some_and(|pending| *pending > 0.0) {
                return shown;
            }
            assert!(
                begun.elapsed() < Duration::from_mins(1) && !relay.is_finished(),
                "{shown:?}"
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let shown = metrics::with_local_recorder(&recorder, || runtime.unwrap().block_on(relay));
    let count = |name| shown.get(name).copied();
    assert_eq!(count("outbox_pending_count"), Some(1.0));
    assert_eq!(count("outbox_waiting_count"), Some(1.0));
    let age = count("outbox_oldest_age_seconds").unwrap();
    assert!(age >= 90.0, "{age}");
}
