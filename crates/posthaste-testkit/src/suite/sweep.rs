//! Giving up rows that have used all their attempts.

use chrono::TimeDelta;
use posthaste_core::RelayStore;
use posthaste_core::lifecycle::{State, Verdict};
use posthaste_core::store::Scope;

use super::steps::{
    HOUR, LEASE_AND_MORE, MINUTE, SECOND, Worker, enqueue_new, keyed, plain, record, retry, settle, state,
};
use crate::backend::Backend;

async fn sweep<B: Backend>(b: &B, scope: &Scope, max_attempts: u32) -> Vec<posthaste_core::MessageId> {
    b.store().sweep(scope, max_attempts).await.expect("sweep works")
}

/// Proves B8, B15 and pitfall 8.
pub async fn a_row_whose_worker_vanished_on_the_last_attempt_is_swept<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [plain("1")]).await;
    Worker::new().max_attempts(1).claim(b, 10).await;
    b.pass_time(LEASE_AND_MORE).await;
    assert_eq!(sweep(b, &Scope::default(), 1).await, ids);
    let row = record(b, ids[0]).await;
    assert_eq!((row.state, row.attempts), (State::Dead, 1));
    assert_eq!((row.locked_by, row.locked_until), (None, None));
    assert!(row.last_error.is_some(), "an operator must see why");
    assert!(
        row.updated_at - row.created_at >= TimeDelta::seconds(30),
        "the sweep moved updated_at"
    );
    assert_eq!(sweep(b, &Scope::default(), 1).await, [], "it dies once");
}

/// Proves B8.
pub async fn waiting_rows_above_a_lowered_limit_are_swept<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [keyed("k", "1"), keyed("k", "2")]).await;
    for _ in 0..3 {
        Worker::new().claim(b, 1).await.settle(b, retry(SECOND)).await;
        b.pass_time(MINUTE).await;
    }
    assert_eq!(sweep(b, &Scope::default(), 3).await, ids[..1]);
    let row = record(b, ids[0]).await;
    assert_eq!((row.state, row.attempts), (State::Dead, 3));
    assert_eq!(
        row.last_error.as_deref(),
        Some("the broker is unavailable"),
        "the last real error is kept"
    );
    assert_eq!(
        Worker::new().max_attempts(3).claim(b, 10).await.ids(),
        ids[1..],
        "its key goes on"
    );
}

/// To look for them with every claim would be dear.
///
/// Proves B8.
pub async fn waiting_rows_above_a_lowered_limit_are_left_to_the_sweep<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [plain("1"), plain("2")]).await;
    Worker::new().claim(b, 1).await.settle(b, retry(SECOND)).await;
    b.pass_time(MINUTE).await;
    let work = Worker::new().max_attempts(1).claim(b, 10).await;
    assert_eq!(work.ids(), ids[1..]);
    assert_eq!(state(b, ids[0]).await, State::Pending);
}

/// Proves B8, B14.
pub async fn a_live_lease_is_not_swept<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [plain("1")]).await;
    let work = Worker::new().max_attempts(1).claim(b, 10).await;
    assert_eq!(sweep(b, &Scope::default(), 1).await, []);
    assert_eq!(state(b, ids[0]).await, State::Processing);
    work.deliver(b).await;
}

/// Proves B8.
pub async fn rows_with_attempts_left_are_not_swept<B: Backend>(b: &B) {
    enqueue_new(b, [plain("fresh"), plain("retried"), plain("left")]).await;
    let work = Worker::new().claim(b, 2).await;
    work.settle(b, retry(HOUR)).await;
    Worker::new().claim(b, 10).await;
    b.pass_time(LEASE_AND_MORE).await;
    assert_eq!(sweep(b, &Scope::default(), 2).await, []);
}

/// Proves B8, B17.
pub async fn a_sweep_stays_in_its_scope<B: Backend>(b: &B) {
    let scope = |namespace: &str, topics: &[&str], tenant: Option<&str>| Scope {
        namespace: namespace.into(),
        topics: topics.iter().map(|&topic| topic.to_owned()).collect(),
        tenant: tenant.map(str::to_owned),
    };
    let ids = enqueue_new(
        b,
        [
            plain("1").namespace("a"),
            plain("2").namespace("a").tenant("t"),
            plain("3").namespace("b"),
        ],
    )
    .await;
    for namespace in ["a", "b"] {
        Worker::new()
            .max_attempts(1)
            .scope(scope(namespace, &[], None))
            .claim(b, 10)
            .await;
    }
    b.pass_time(LEASE_AND_MORE).await;
    assert_eq!(sweep(b, &scope("a", &["elsewhere"], None), 1).await, []);
    assert_eq!(sweep(b, &scope("a", &["orders"], Some("t")), 1).await, [ids[1]]);
    assert_eq!(sweep(b, &scope("a", &[], None), 1).await, [ids[0]]);
    assert_eq!(state(b, ids[2]).await, State::Processing);
}

/// A second worker gave it back after the first one crashed: it counts one attempt and waits for nothing.
///
/// Proves B8 and pitfall 8.
pub async fn a_fresh_row_above_a_lowered_limit_is_swept<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [plain("1")]).await;
    Worker::new().claim(b, 1).await;
    b.pass_time(LEASE_AND_MORE).await;
    let second = Worker::new().claim(b, 1).await;
    assert_eq!(settle(b, vec![second.verdict(ids[0], Verdict::Released)]).await, []);
    assert_eq!(record(b, ids[0]).await.attempts, 1);
    assert_eq!(sweep(b, &Scope::default(), 1).await, ids);
    assert_eq!(state(b, ids[0]).await, State::Dead);
}
