//! A table that another transaction has locked as a whole, as `create index` and `alter table` do: nobody waits for
//! long, nothing is lost, and nobody is blamed who is not to blame.

use std::time::Duration;

use posthaste_core::lifecycle::{State, Verdict};
use posthaste_core::store::{ExtendRequest, Extended, StoreErrorKind};
use posthaste_core::{MessageId, RelayStore};
use posthaste_relay::{RelayConfig, RelayReport};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::engine::{broker, config, eventually, start};
use super::steps::{LEASE, SECOND, Worker, enqueue_new, plain, record, settle, state};
use crate::backend::Backend;
use crate::{FaultyPublisher, RecordingPublisher};

/// A wait for a lock that is never released takes longer than this.
async fn soon<T>(work: impl Future<Output = T>) -> T {
    timeout(SECOND * 20, work).await.expect("the lock is not waited for")
}

/// Proves B9 and pitfall 6.
pub async fn verdicts_and_renewals_are_busy_and_nothing_is_lost<B: Backend>(b: &B) {
    let mut ids = enqueue_new(b, (0..5).map(|n| plain(&n.to_string()))).await;
    ids.sort();
    let work = Worker::new().claim(b, 10).await;
    let before = record(b, ids[0]).await;
    let mut tx = b.begin().await;
    b.lock_table(&mut tx).await;
    let verdicts: Vec<_> = ids.iter().map(|id| work.verdict(*id, Verdict::Delivered)).collect();
    let settled = soon(b.store().settle(&verdicts)).await.expect("a lock is no failure");
    assert!(settled.lost.is_empty() && settled.refused.is_empty(), "{settled:?}");
    let mut busy: Vec<_> = settled.busy.iter().map(|row| row.id).collect();
    busy.sort();
    assert_eq!(busy, ids);
    assert!(settled.busy.iter().all(|row| row.holder.is_some()), "it says who");
    let extended = soon(b.store().extend(ExtendRequest::new(work.token, &ids, LEASE))).await;
    assert_eq!(extended.expect("a lock is no failure"), Extended::busy(ids.clone()));

    b.rollback(tx).await;
    assert_eq!(record(b, ids[0]).await, before, "nothing is written late");
    let extended = b.store().extend(ExtendRequest::new(work.token, &ids, LEASE)).await;
    assert_eq!(extended.expect("extend works").busy, []);
    let verdicts = ids.iter().map(|id| work.verdict(*id, Verdict::Delivered));
    assert_eq!(settle(b, verdicts.collect()).await, []);
    assert_eq!(state(b, ids[4]).await, State::Delivered);
}

/// A claim must not wait for long.
pub async fn a_claim_does_not_wait_for_long_and_says_why<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [plain("1")]).await;
    let mut tx = b.begin().await;
    b.lock_table(&mut tx).await;
    for worker in [Worker::new(), Worker::new().unordered()] {
        let claimed = soon(worker.try_claim(b, 10)).await;
        let error = claimed.err().expect("the table is locked");
        assert_eq!(error.kind, StoreErrorKind::Contention);
        assert!(error.message.contains("the whole table"), "{error}");
    }
    b.rollback(tx).await;
    assert_eq!(Worker::new().claim(b, 10).await.ids(), ids);
}

/// A relay that has published messages, and could not write so because another transaction had locked the table before.
struct Locked<B: Backend> {
    ids: Vec<MessageId>,
    tx: B::Tx,
    broker: FaultyPublisher<RecordingPublisher>,
    shutdown: CancellationToken,
    relay: tokio::task::JoinHandle<RelayReport>,
}

impl<B: Backend> Locked<B> {
    async fn new(b: &B, shutdown_grace: Duration) -> Self {
        let ids = enqueue_new(b, (0..20).map(|n| plain(&n.to_string()))).await;
        let broker = broker();
        broker.hang();
        let config = RelayConfig {
            poll_interval: SECOND / 20,
            max_poll_interval: SECOND / 20,
            shutdown_grace,
            ..config()
        };
        let (shutdown, relay) = start(b, broker.clone(), config);
        broker.wait_until_hanging(1).await;
        let mut tx = b.begin().await;
        b.lock_table(&mut tx).await;
        broker.heal();
        broker.inner().wait_for(ids.len()).await;
        Self {
            ids,
            tx,
            broker,
            shutdown,
            relay,
        }
    }
}

/// Proves B9 and pitfall 6.
pub async fn a_relay_writes_what_it_published_when_the_lock_is_gone<B: Backend>(b: &B) {
    let locked = Locked::new(b, SECOND).await;
    // Longer than any wait for a lock.
    sleep(SECOND * 2).await;
    b.rollback(locked.tx).await;
    eventually("the deliveries to be written", async || {
        let stats = b.store().stats("default").await.expect("stats work");
        (stats.pending, stats.processing) == (0, 0)
    })
    .await;
    locked.shutdown.cancel();
    let report = locked.relay.await.expect("the relay does not panic");
    assert_eq!((report.delivered, report.busy, report.lease_lost), (20, 0, 0));
    locked.broker.inner().assert_delivered_once(&locked.ids);
}

/// A relay that is stopped has its grace.
pub async fn a_relay_that_stops_has_its_verdicts_written_if_the_lock_goes_in_time<B: Backend>(b: &B) {
    let locked = Locked::new(b, SECOND * 10).await;
    locked.shutdown.cancel();
    sleep(SECOND).await;
    assert!(!locked.relay.is_finished());
    b.rollback(locked.tx).await;
    let report = soon(locked.relay).await.expect("the relay does not panic");
    assert_eq!((report.delivered, report.busy, report.abandoned), (20, 0, 0));
}

/// The publisher is not blamed.
pub async fn a_relay_that_stops_says_that_it_was_the_database_that_did_not_answer<B: Backend>(b: &B) {
    let locked = Locked::new(b, SECOND).await;
    locked.shutdown.cancel();
    // A claim that was under way, the grace, and the deregistration. Nothing else would end it: the lock is still there.
    let report = soon(locked.relay).await.expect("the relay does not panic");
    b.rollback(locked.tx).await;
    assert_eq!((report.busy + report.unsettled, report.abandoned), (20, 0));
    assert_eq!(report.lease_lost, 0);
}
