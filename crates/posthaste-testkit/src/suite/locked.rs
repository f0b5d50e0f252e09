//! A row that another transaction has locked, as an operator with `select … for update` does: nobody waits for it, and
//! nothing is lost.

use posthaste_core::lifecycle::{LeaseToken, Settlement, State, Verdict};
use posthaste_core::store::{ExtendRequest, Extended, PurgeRequest};
use posthaste_core::{MessageId, RelayStore};
use tokio::time::{sleep, timeout};

use super::engine::{SHORT_LEASE_AND_MORE, broker, eventually, short, start};
use super::steps::{
    HOUR, LEASE, LEASE_AND_MORE, SECOND, Worker, enqueue_new, keyed, plain, purge, record, settle, state,
};
use crate::backend::Backend;

/// A wait for a lock that is never released takes longer than this.
async fn soon<T>(work: impl Future<Output = T>) -> T {
    timeout(SECOND * 20, work).await.expect("the lock is not waited for")
}

/// Proves B9 and pitfall 19.
pub async fn a_locked_row_is_busy_and_its_neighbours_are_settled<B: Backend>(b: &B) {
    let ids = enqueue_new(b, (0..5).map(|n| plain(&n.to_string()))).await;
    let work = Worker::new().claim(b, 10).await;
    let mut tx = b.begin().await;
    b.lock_row(&mut tx, ids[2]).await;
    let verdicts: Vec<_> = ids.iter().map(|id| work.verdict(*id, Verdict::Delivered)).collect();
    let settled = soon(b.store().settle(&verdicts)).await.expect("settle works");
    let busy: Vec<_> = settled.busy.iter().map(|row| row.id).collect();
    assert_eq!((busy, settled.lost), (vec![ids[2]], vec![]));
    assert!(settled.refused.is_empty());
    for (n, id) in ids.iter().enumerate() {
        let expected = if n == 2 { State::Processing } else { State::Delivered };
        assert_eq!(state(b, *id).await, expected);
    }
    // Under another token it is not busy but lost.
    let stale = [Settlement::delivered(ids[2], LeaseToken::new())];
    let settled = soon(b.store().settle(&stale)).await.expect("settle works");
    assert_eq!((settled.lost, settled.busy), (vec![ids[2]], vec![]));

    b.rollback(tx).await;
    assert_eq!(settle(b, vec![work.verdict(ids[2], Verdict::Delivered)]).await, []);
    assert_eq!(state(b, ids[2]).await, State::Delivered);
}

/// Proves B9 and pitfall 6.
pub async fn a_locked_row_is_neither_renewed_nor_lost<B: Backend>(b: &B) {
    let ids = enqueue_new(b, (0..3).map(|n| plain(&n.to_string()))).await;
    let work = Worker::new().claim(b, 10).await;
    let before = record(b, ids[1]).await;
    let mut tx = b.begin().await;
    b.lock_row(&mut tx, ids[1]).await;
    let asked = [ids[0], ids[1], ids[2], MessageId::new()];
    let extended = soon(b.store().extend(ExtendRequest::new(work.token, &asked, HOUR))).await;
    let Extended { mut held, busy } = extended.expect("extend works");
    held.sort();
    let mut others = vec![ids[0], ids[2]];
    others.sort();
    assert_eq!((held, busy), (others, vec![ids[1]]));
    assert_eq!(record(b, ids[1]).await, before);
    b.rollback(tx).await;
    let extended = b
        .store()
        .extend(ExtendRequest::new(work.token, &ids[1..2], LEASE))
        .await;
    assert_eq!(extended.expect("extend works"), Extended::all(vec![ids[1]]));
}

/// Proves B7 and pitfall 4.
pub async fn a_locked_row_is_left_alone_by_claims_and_by_those_who_clean_up<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [plain("1"), keyed("k", "2"), keyed("k", "3"), plain("4")]).await;
    let work = Worker::new().claim(b, 10).await;
    assert_eq!(settle(b, vec![work.verdict(ids[3], Verdict::Delivered)]).await, []);
    b.pass_time(LEASE_AND_MORE).await;
    let mut tx = b.begin().await;
    for id in [ids[0], ids[1], ids[3]] {
        b.lock_row(&mut tx, id).await;
    }
    let worker = Worker::new();
    assert_eq!(soon(worker.claim(b, 10)).await.ids(), [], "its key waits too");
    let swept = soon(b.store().sweep(&posthaste_core::store::Scope::default(), 1)).await;
    assert_eq!(swept.expect("sweep works"), ids[2..3]);
    let purged = soon(b.store().purge(&PurgeRequest::older_than(SECOND, 10)))
        .await
        .map(|purged| purged.rows());
    assert_eq!(purged.expect("purge works"), 0);
    b.rollback(tx).await;
    assert_eq!(purge(b, SECOND, 10).await, 1);
    assert!(!worker.claim(b, 10).await.ids().is_empty());
}

/// Proves B6, B9 and pitfall 19.
pub async fn a_lock_on_one_row_in_flight_stops_no_other_and_repeats_nothing<B: Backend>(b: &B) {
    let ids = enqueue_new(b, (0..50).map(|n| plain(&n.to_string()))).await;
    let broker = broker();
    broker.hang();
    let (shutdown, relay) = start(b, broker.clone(), short());
    broker.wait_until_hanging(1).await;
    let mut tx = b.begin().await;
    b.lock_row(&mut tx, ids[17]).await;
    // The leases of the others are renewed all the same.
    sleep(SHORT_LEASE_AND_MORE).await;
    assert_eq!(Worker::new().claim(b, 100).await.ids(), []);
    // Nothing that was not sent within its lease is sent, so the locked one is given back.
    broker.heal();
    let later = enqueue_new(b, (0..50).map(|n| plain(&n.to_string()))).await;
    let delivered = async |ids: Vec<MessageId>| {
        eventually("the deliveries to be written", async || {
            for id in &ids {
                if state(b, *id).await != State::Delivered {
                    return false;
                }
            }
            true
        })
        .await;
    };
    let others = ids.iter().filter(|id| **id != ids[17]);
    delivered(others.chain(&later).copied().collect()).await;
    assert_ne!(state(b, ids[17]).await, State::Delivered);
    b.rollback(tx).await;
    delivered(vec![ids[17]]).await;
    shutdown.cancel();
    let report = relay.await.expect("the relay does not panic");
    assert_eq!((report.delivered, report.busy, report.died), (100, 0, 0));
    let all: Vec<_> = ids.into_iter().chain(later).collect();
    broker.inner().assert_delivered_once(&all);
}

/// Proves B6, B9 and pitfall 19.
pub async fn a_published_message_whose_row_is_locked_is_written_when_the_lock_is_gone<B: Backend>(b: &B) {
    let ids = enqueue_new(b, (0..50).map(|n| plain(&n.to_string()))).await;
    let broker = broker();
    broker.hang();
    let (shutdown, relay) = start(b, broker.clone(), short());
    broker.wait_until_hanging(1).await;
    let mut tx = b.begin().await;
    b.lock_row(&mut tx, ids[17]).await;
    broker.heal();
    eventually("the neighbours to be written", async || {
        let stats = b.store().stats("default").await.expect("stats work");
        (stats.pending, stats.processing) == (0, 1)
    })
    .await;
    sleep(SHORT_LEASE_AND_MORE).await;
    assert_eq!(state(b, ids[17]).await, State::Processing);
    b.rollback(tx).await;
    eventually("all deliveries to be written", async || {
        let stats = b.store().stats("default").await.expect("stats work");
        (stats.pending, stats.processing) == (0, 0)
    })
    .await;
    shutdown.cancel();
    let report = relay.await.expect("the relay does not panic");
    assert_eq!((report.delivered, report.busy, report.died), (50, 0, 0));
    broker.inner().assert_delivered_once(&ids);
}
