//! Removing what is no longer needed.

use posthaste_core::lifecycle::{State, Verdict};
use posthaste_core::store::PurgeRequest;
use posthaste_core::{AdminStore, RelayStore};

use super::steps::{DAY, HOUR, LEASE_AND_MORE, Worker, enqueue_new, plain, purge, records, retry, settle};
use crate::backend::Backend;

/// Retention: what is old and delivered goes.
pub async fn delivered_rows_are_removed_once_they_are_old<B: Backend>(b: &B) {
    enqueue_new(b, [plain("old")]).await;
    Worker::new().claim(b, 10).await.deliver(b).await;
    b.pass_time(HOUR * 2).await;
    let young = enqueue_new(b, [plain("young")]).await;
    Worker::new().claim(b, 10).await.deliver(b).await;

    assert_eq!(purge(b, HOUR * 3, 100).await, 0);
    assert_eq!(purge(b, HOUR, 100).await, 1);
    let left: Vec<_> = records(b).await.into_iter().map(|row| row.message.id).collect();
    assert_eq!(left, young);
}

/// A dry run says what a purge would remove, and nothing is removed.
pub async fn what_a_purge_would_remove_is_counted_and_stays<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [plain("old"), plain("pending"), plain("with a key").dedupe_key("k")]).await;
    let work = Worker::new().claim(b, 10).await;
    let verdicts = [Verdict::Delivered, Verdict::Released, Verdict::Delivered];
    let settlements = ids.iter().zip(verdicts).map(|(id, verdict)| work.verdict(*id, verdict));
    assert_eq!(settle(b, settlements.collect()).await, []);
    b.pass_time(HOUR * 2).await;
    let count = async |keep| {
        let found = b.store().purgeable(&PurgeRequest::older_than(keep, 1)).await;
        found.expect("counting works").rows()
    };
    assert_eq!(
        (count(HOUR * 3).await, count(HOUR).await),
        (0, 2),
        "the key has its window"
    );

    b.pass_time(DAY * 365).await;
    let expected = count(HOUR).await;
    assert_eq!(
        (records(b).await.len(), count(HOUR).await),
        (3, expected),
        "nothing is removed"
    );
    let mut removed = 0;
    loop {
        match purge(b, HOUR, 1).await {
            0 => break,
            rows => removed += rows,
        }
    }
    assert_eq!((removed, count(HOUR).await), (expected, 0));
}

/// Retention counts from the delivery, not from the enqueue.
pub async fn the_age_counts_from_the_delivery<B: Backend>(b: &B) {
    enqueue_new(b, [plain("1")]).await;
    b.pass_time(DAY).await;
    Worker::new().claim(b, 10).await.deliver(b).await;
    assert_eq!(purge(b, HOUR, 100).await, 0);
    b.pass_time(HOUR * 2).await;
    assert_eq!(purge(b, HOUR, 100).await, 1);
}

/// Retention never touches what was not delivered, however old.
pub async fn a_row_that_was_not_delivered_is_never_removed<B: Backend>(b: &B) {
    let ids = enqueue_new(b, (0..5).map(|n| plain(&n.to_string()))).await;
    let work = Worker::new().claim(b, 4).await;
    let verdicts = [
        retry(HOUR),
        Verdict::Dead {
            error: "refused".into(),
        },
        Verdict::Released,
    ];
    let settlements = ids.iter().zip(verdicts).map(|(id, verdict)| work.verdict(*id, verdict));
    assert_eq!(settle(b, settlements.collect()).await, []);
    b.pass_time(DAY * 365).await;
    assert_eq!(purge(b, std::time::Duration::ZERO, 100).await, 0);
    let states: Vec<_> = records(b).await.into_iter().map(|row| row.state).collect();
    let pending = State::Pending;
    assert_eq!(states, [pending, State::Dead, pending, State::Processing, pending]);
}

/// Dead messages are somebody's to decide on: they go by an age of their own, and each is named.
pub async fn dead_rows_are_removed_only_by_an_age_of_their_own<B: Backend>(b: &B) {
    let ids = enqueue_new(b, (0..3).map(|n| plain(&n.to_string()))).await;
    b.pass_time(DAY).await;
    let die = async |id| {
        let dead = Verdict::Dead {
            error: "refused".into(),
        };
        let work = Worker::new().claim(b, 1).await;
        assert_eq!(settle(b, vec![work.verdict(id, dead)]).await, []);
    };
    die(ids[0]).await;
    b.pass_time(HOUR * 2).await;
    die(ids[1]).await;

    let request = |age| PurgeRequest {
        dead: Some(age),
        limit: 10,
        ..PurgeRequest::default()
    };
    let count = async |age| {
        let found = b.store().purgeable(&request(age)).await;
        found.expect("counting works").dead
    };
    assert_eq!(purge(b, std::time::Duration::ZERO, 10).await, 0, "not among the others");
    assert_eq!((count(HOUR * 3).await, count(HOUR).await), (0, 1), "since their death");
    let removed = b.store().purge(&request(HOUR)).await.expect("purge works");
    assert_eq!((removed.dead.as_slice(), removed.rows()), (&ids[..1], 1));
    let left: Vec<_> = records(b)
        .await
        .into_iter()
        .map(|row| (row.message.id, row.state))
        .collect();
    assert_eq!(left, [(ids[1], State::Dead), (ids[2], State::Pending)]);
}

/// A relay removes what it is told to remove, and not what others keep.
pub async fn the_rows_of_another_namespace_are_kept<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [plain("ours"), plain("theirs").namespace("other")]).await;
    Worker::new().claim(b, 10).await.deliver(b).await;
    Worker::of_namespace("other").claim(b, 10).await.deliver(b).await;
    b.pass_time(HOUR * 2).await;
    let request = PurgeRequest {
        namespace: Some("default".to_owned()),
        ..PurgeRequest::older_than(HOUR, 10)
    };
    let found = b.store().purgeable(&request).await.expect("counting works");
    let removed = b.store().purge(&request).await.expect("purge works");
    assert_eq!((found.delivered, removed.delivered), (1, 1));
    let left: Vec<_> = records(b).await.into_iter().map(|row| row.message.id).collect();
    assert_eq!(left, ids[1..]);
}

/// Proves pitfall 16.
pub async fn a_purge_is_bounded_and_is_repeated_until_nothing_is_left<B: Backend>(b: &B) {
    enqueue_new(b, (0..25).map(|n| plain(&n.to_string()))).await;
    Worker::new().claim(b, 100).await.deliver(b).await;
    b.pass_time(LEASE_AND_MORE).await;
    let mut removed = Vec::new();
    for _ in 0..4 {
        removed.push(purge(b, std::time::Duration::ZERO, 10).await);
    }
    assert_eq!(removed, [10, 10, 5, 0]);
}
