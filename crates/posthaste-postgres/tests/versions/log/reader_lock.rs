//! Who reads: one at a time, for as long as it is heard.

use std::time::{Duration, Instant};

use posthaste_core::RelayStore;
use posthaste_core::store::{ClaimRequest, ExtendRequest};
use tokio::time::sleep;

use super::eventually;

use crate::support::log::{Log, Work, request};

/// A reader whose connection ended is followed at once, and cannot write any more.
#[tokio::test(flavor = "multi_thread")]
async fn one_reads_at_a_time_and_whoever_lost_the_seat_writes_nothing() {
    let log = Log::fresh(4).await;
    for order in 0..4 {
        log.append(&log.pool, &order.to_string()).await;
    }
    let (first, second) = (log.store(), log.store());
    let work = Work::claim(&first, &request(2)).await;
    assert!(
        Work::claim(&second, &request(4)).await.events().is_empty(),
        "the first one reads"
    );
    let ended = sqlx::query(
        "select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory' and granted
         and ((classid::bigint << 32) | objid::bigint)
            = hashtextextended('posthaste:log:' || 'outbox_cursor'::regclass::oid::text, 0)",
    );
    assert_eq!(ended.fetch_all(&log.pool).await.unwrap().len(), 1);
    let mut followed = Vec::new();
    eventually("the second one follows", async || {
        followed = Work::claim(&second, &request(4)).await.events();
        !followed.is_empty()
    })
    .await;
    // What the first one may have sent comes in smaller groups.
    assert_eq!(
        followed[..2],
        work.events(),
        "from the cursor on: repeated, not skipped"
    );
    let settlements = [posthaste_core::lifecycle::Settlement::retry(
        work.id(0),
        work.token,
        Duration::ZERO,
        "late",
    )];
    for _ in 0..2 {
        assert_eq!(
            first.settle(&settlements).await.unwrap().lost,
            [work.id(0)],
            "its connection is gone, and with it its lease"
        );
    }
    assert_eq!((log.failed().await, log.cursor().await), (0, 0));
}

/// A reader that is frozen says nothing, so the server ends its connection after the lease.
#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_reader_loses_its_seat_after_its_lease() {
    let log = Log::fresh(4).await;
    log.append(&log.pool, "1").await;
    let (frozen, second) = (log.store(), log.store());
    let lease = Duration::from_secs(1);
    let brief = ClaimRequest { lease, ..request(1) };
    let begun = Instant::now();
    let work = Work::claim(&frozen, &brief).await;
    assert_eq!(work.events().len(), 1);
    eventually("the second one follows", async || {
        !Work::claim(&second, &brief).await.events().is_empty()
    })
    .await;
    assert!(begun.elapsed() >= lease, "not before the frozen one's lease was over");
    assert!(
        begun.elapsed() < Duration::from_secs(20),
        "and soon after: {:?}",
        begun.elapsed()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_renews_keeps_its_seat_and_one_that_leaves_is_followed_at_once() {
    let log = Log::fresh(4).await;
    log.append(&log.pool, "1").await;
    let (first, second) = (log.store(), log.store());
    let brief = ClaimRequest {
        lease: Duration::from_secs(3),
        ..request(1)
    };
    let work = Work::claim(&first, &brief).await;
    for _ in 0..8 {
        sleep(Duration::from_millis(500)).await;
        assert_eq!(
            first
                .extend(ExtendRequest::new(work.token, &[work.id(0)], brief.lease))
                .await
                .unwrap()
                .held,
            [work.id(0)]
        );
        assert!(Work::claim(&second, &brief).await.events().is_empty());
    }
    work.settle(&first, &[]).await;
    first.close().await.unwrap();
    let event = log.append(&log.pool, "2").await;
    eventually("the second one follows", async || {
        Work::claim(&second, &brief).await.events() == [event.clone()]
    })
    .await;
}

/// What a worker of the same process left behind goes out again after its lease.
#[tokio::test(flavor = "multi_thread")]
async fn rows_of_a_worker_that_forgot_them_are_handed_out_again_after_their_lease() {
    let log = Log::fresh(4).await;
    log.append(&log.pool, "1").await;
    let store = log.store();
    let brief = ClaimRequest {
        lease: Duration::from_millis(300),
        ..request(1)
    };
    let forgotten = Work::claim(&store, &brief).await;
    assert_eq!(forgotten.events().len(), 1);
    let mut again = Work::claim(&store, &brief).await;
    assert!(again.events().is_empty());
    eventually("again", async || {
        again = Work::claim(&store, &brief).await;
        !again.events().is_empty()
    })
    .await;
    assert_eq!(
        forgotten.settle(&store, &[]).await,
        [forgotten.id(0)],
        "its lease is lost"
    );
    assert_eq!(again.settle(&store, &[]).await, []);
}

#[tokio::test]
async fn a_relay_of_some_topics_is_refused() {
    let log = Log::fresh(2).await;
    let mut part = request(1);
    part.scope.topics = vec!["order-events".to_owned()];
    let error = log.store().claim(&part).await.unwrap_err().to_string();
    assert!(error.contains("scope.topics"), "{error}");
}
