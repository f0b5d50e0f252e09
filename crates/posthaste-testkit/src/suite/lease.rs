//! Prolonging leases.

use posthaste_core::lifecycle::{LeaseToken, State, Verdict};
use posthaste_core::store::{ExtendRequest, Extended};
use posthaste_core::{MessageId, RelayStore};

use super::steps::{ALMOST_LEASE, LEASE, LEASE_AND_MORE, Worker, enqueue_new, plain, record, settle};
use crate::backend::Backend;

/// Proves B14, B15 and pitfall 6.
pub async fn an_extended_lease_holds_longer<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [plain("1")]).await;
    let work = Worker::new().claim(b, 10).await;
    let claimed = record(b, ids[0]).await;
    b.pass_time(ALMOST_LEASE).await;
    let held = b
        .store()
        .extend(ExtendRequest::new(work.token, &ids, LEASE))
        .await
        .expect("extend works");
    assert_eq!(held, Extended::all(ids.clone()));
    let row = record(b, ids[0]).await;
    assert_eq!(row.locked_until, Some(row.updated_at + LEASE), "counted from now");
    assert_eq!((row.state, row.attempts), (State::Processing, 1), "no further attempt");
    assert_eq!(row.locked_by, claimed.locked_by);

    b.pass_time(ALMOST_LEASE).await;
    assert_eq!(Worker::new().claim(b, 10).await.ids(), []);
    work.deliver(b).await;
}

/// Proves B7.
pub async fn an_extended_lease_runs_out_too<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [plain("1")]).await;
    let work = Worker::new().claim(b, 10).await;
    b.store()
        .extend(ExtendRequest::new(work.token, &ids, LEASE))
        .await
        .expect("extend works");
    b.pass_time(LEASE_AND_MORE).await;
    assert_eq!(Worker::new().claim(b, 10).await.ids(), ids);
}

/// Proves B9 and pitfalls 6, 7.
pub async fn a_lost_lease_cannot_be_extended<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [plain("1")]).await;
    let worker = Worker::new();
    let stale = worker.claim(b, 10).await;
    b.pass_time(LEASE_AND_MORE).await;
    let current = worker.claim(b, 10).await;
    let before = record(b, ids[0]).await;
    let held = b
        .store()
        .extend(ExtendRequest::new(stale.token, &ids, LEASE * 10))
        .await;
    assert_eq!(held.expect("extend works"), Extended::default());
    assert_eq!(record(b, ids[0]).await, before);
    current.deliver(b).await;
}

/// Proves B9 and pitfall 6.
pub async fn an_extension_names_the_leases_that_are_still_held<B: Backend>(b: &B) {
    let ids = enqueue_new(b, (0..4).map(|n| plain(&n.to_string()))).await;
    let work = Worker::new().claim(b, 3).await;
    assert_eq!(settle(b, vec![work.verdict(ids[1], Verdict::Delivered)]).await, []);
    let asked = [ids[0], ids[1], ids[2], ids[3], MessageId::new()];
    let mut held = b
        .store()
        .extend(ExtendRequest::new(work.token, &asked, LEASE))
        .await
        .expect("extend works")
        .held;
    held.sort();
    let mut expected = vec![ids[0], ids[2]];
    expected.sort();
    assert_eq!(held, expected, "not the settled, the unclaimed or the unknown one");
    let other = b
        .store()
        .extend(ExtendRequest::new(LeaseToken::new(), &asked, LEASE))
        .await;
    assert_eq!(other.expect("extend works"), Extended::default());
}
