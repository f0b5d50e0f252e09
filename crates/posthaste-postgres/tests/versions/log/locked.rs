//! Failed rows that another transaction has locked.

use std::time::Duration;

use posthaste_core::RelayStore;
use posthaste_core::lifecycle::Settlement;
use posthaste_core::store::{ExtendRequest, Extended};
use posthaste_relay::{Relay, RelayConfig};
use posthaste_testkit::{FaultyPublisher, RecordingPublisher};
use sqlx::Executor;
use tokio_util::sync::CancellationToken;

use super::{events, eventually};

use crate::support::log::{Log, Work, request, retry};

/// Twenty failed rows that are due.
async fn failed() -> (Log, Vec<String>) {
    let log = Log::fresh(6).await;
    let mut appended = Vec::new();
    for order in 0..20 {
        appended.push(log.append(&log.pool, &order.to_string()).await);
    }
    let store = log.store();
    let work = Work::claim(&store, &request(20)).await;
    let all: Vec<_> = (0..20).map(|place| (place, retry(0))).collect();
    work.settle(&store, &all).await;
    assert_eq!(log.failed().await, 20);
    store.close().await.unwrap();
    log.make_due().await;
    (log, appended)
}

const LOCK: &str = "select from outbox_failed where aggregate_id = '7' for update";

/// Proves pitfall 19.
#[tokio::test(flavor = "multi_thread")]
async fn a_locked_row_is_busy_and_its_neighbours_are_settled() {
    let (log, _) = failed().await;
    let store = log.store();
    let work = Work::claim(&store, &request(50)).await;
    assert_eq!(work.events().len(), 20);
    let mut other = log.pool.begin().await.unwrap();
    other.execute(LOCK).await.unwrap();
    let ids = work.claim.messages.iter().map(|claimed| claimed.message.id);
    let verdicts: Vec<_> = ids.map(|id| Settlement::delivered(id, work.token)).collect();
    let settled = tokio::time::timeout(Duration::from_secs(10), store.settle(&verdicts)).await;
    let settled = settled.expect("the lock is not waited for").unwrap();
    assert!(settled.lost.is_empty() && settled.refused.is_empty(), "{settled:?}");
    assert_eq!((settled.busy.len(), log.failed().await), (1, 1));
    let busy = settled.busy[0].id;
    let extended = store
        .extend(ExtendRequest::new(work.token, &[busy], Duration::from_secs(30)))
        .await;
    assert_eq!(extended.unwrap(), Extended::all(vec![busy]), "it is still ours");
    log.append(&log.pool, "fresh").await;
    let fresh = Work::claim(&store, &request(50)).await;
    assert_eq!(fresh.keys(), ["fresh"], "others go on");
    fresh.settle(&store, &[]).await;
    other.rollback().await.unwrap();
    let settled = store.settle(&[Settlement::delivered(busy, work.token)]).await.unwrap();
    assert!(settled.lost.is_empty() && settled.busy.is_empty(), "{settled:?}");
    assert_eq!(log.failed().await, 0);
}

/// Proves pitfall 19.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_on_one_failed_row_stops_no_other_and_repeats_nothing() {
    let (log, mut expected) = failed().await;
    let broker = FaultyPublisher::new(RecordingPublisher::new());
    broker.hang();
    let shutdown = CancellationToken::new();
    let config = RelayConfig {
        lease: Duration::from_secs(3),
        ..log.config()
    };
    let relay = Relay::new(log.store(), broker.clone()).config(config);
    let relay = tokio::spawn(relay.run_until(shutdown.clone()));
    broker.wait_until_hanging(1).await;
    let mut other = log.pool.begin().await.unwrap();
    other.execute(LOCK).await.unwrap();
    broker.heal();
    eventually("the neighbours to be written", async || log.failed().await == 1).await;
    expected.push(log.append(&log.pool, "fresh").await);
    eventually("a fresh row to be delivered", async || broker.inner().ids().len() == 21).await;
    // Its lease would be over by now.
    tokio::time::sleep(Duration::from_secs(4)).await;
    other.rollback().await.unwrap();
    eventually("the locked row to be written", async || log.failed().await == 0).await;
    shutdown.cancel();
    let report = relay.await.unwrap().unwrap();
    assert_eq!((report.delivered, report.busy, report.lease_lost), (21, 0, 0));
    let mut published = events(broker.inner());
    published.sort();
    expected.sort();
    assert_eq!(published, expected);
}

/// Nobody waits for it once for each row.
///
/// Proves pitfall 19.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_on_the_whole_table_of_failures_is_waited_for_once() {
    let (log, _) = failed().await;
    let store = log.store();
    let work = Work::claim(&store, &request(50)).await;
    let mut other = log.pool.begin().await.unwrap();
    other.execute("lock table outbox_failed in share mode").await.unwrap();
    let ids = work.claim.messages.iter().map(|claimed| claimed.message.id);
    let verdicts: Vec<_> = ids.map(|id| Settlement::delivered(id, work.token)).collect();
    let settled = tokio::time::timeout(Duration::from_secs(8), store.settle(&verdicts)).await;
    let settled = settled.expect("nobody waits for the lock for long").unwrap();
    assert!(settled.lost.is_empty() && settled.refused.is_empty(), "{settled:?}");
    assert_eq!(settled.busy.len(), 20);
    other.rollback().await.unwrap();
    let settled = store.settle(&verdicts).await.unwrap();
    assert!(settled.lost.is_empty() && settled.busy.is_empty(), "{settled:?}");
    assert_eq!(log.failed().await, 0);
}
