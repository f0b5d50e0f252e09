//! Tables without leases: the rows of a claim are locked by one transaction, and settled with it.

use std::time::Duration;

use posthaste_core::Outcome;
use posthaste_core::lifecycle::State;
use posthaste_relay::RelayConfig;
use posthaste_testkit::{MemoryLease, MemoryTable};
use tokio::time::sleep;

use super::broker::{Broker, busy};
use super::{LEASE, MINUTE, SECOND, config, drain, enqueue, start, states, store};

const LOCKED: MemoryTable = MemoryTable::new().lease(MemoryLease::RowLocks);

/// Delivers everything at once, except for `slow`.
fn broker() -> Broker {
    Broker::slow(|payload, _| match payload {
        "slow" => (SECOND * 5, Outcome::DELIVERED),
        "hanging" => (MINUTE * 60, Outcome::DELIVERED),
        _ => (Duration::ZERO, Outcome::DELIVERED),
    })
}

/// In this table a second settlement of one claim would find the locks gone.
#[tokio::test(start_paused = true)]
async fn all_verdicts_of_a_claim_are_written_at_once_when_the_last_one_is_known() {
    let store = store(LOCKED);
    let ids = enqueue(&store, ["1", "slow", "a1", "b1", "b2"]).await;
    let broker = Broker::slow(|payload, _| match payload {
        "slow" => (SECOND * 5, Outcome::DELIVERED),
        "a1" => (SECOND, busy()),
        _ => (Duration::ZERO, Outcome::DELIVERED),
    });
    let (shutdown, relay) = start(&store, broker, config());
    sleep(SECOND * 4).await;
    assert_eq!(
        states(&store, ids).await,
        [State::Processing; 5],
        "one is not known yet"
    );
    sleep(SECOND * 2).await;
    shutdown.cancel();
    let report = relay.await.unwrap();
    assert_eq!((report.delivered, report.lease_lost), (4, 0));
    assert!(report.retried > 0);
}

#[tokio::test(start_paused = true)]
async fn several_claims_are_settled_each_by_itself() {
    let store = store(LOCKED);
    let ids = enqueue(&store, ["slow", "1", "2", "3", "4", "5", "6"]).await;
    let pairs = RelayConfig {
        batch_size: 2,
        ..config()
    };
    let (shutdown, relay) = start(&store, broker(), pairs);
    sleep(SECOND).await;
    let mut expected = [State::Delivered; 7];
    expected[..2].fill(State::Processing);
    assert_eq!(states(&store, ids).await, expected);
    sleep(SECOND * 5).await;
    shutdown.cancel();
    let report = relay.await.unwrap();
    assert_eq!((report.delivered, report.lease_lost), (7, 0));
}

#[tokio::test(start_paused = true)]
async fn when_the_locks_are_lost_all_of_the_claim_is_lost_and_comes_again() {
    let store = store(LOCKED);
    let ids = enqueue(&store, ["1", "slow", "a1"]).await;
    let single = RelayConfig {
        batch_size: 3,
        max_in_flight: 3,
        ..config()
    };
    let (shutdown, relay) = start(&store, broker(), single.clone());
    sleep(SECOND).await;
    // The database's clock runs ahead, so that it ends the transaction before the relay would think so.
    store.clock().advance(LEASE * 2);
    sleep(SECOND * 5).await;
    shutdown.cancel();
    let report = relay.await.unwrap();
    assert_eq!(report.lease_lost, 3);
    drain(&store, broker(), single).await;
    assert_eq!(states(&store, ids).await, [State::Delivered; 3]);
}

#[tokio::test(start_paused = true)]
async fn a_relay_that_must_stop_settles_nothing_of_an_unfinished_claim() {
    let store = store(LOCKED);
    let ids = enqueue(&store, ["1", "hanging", "a1"]).await;
    let (shutdown, relay) = start(&store, broker(), config());
    sleep(SECOND).await;
    shutdown.cancel();
    let report = relay.await.unwrap();
    assert_eq!((report.abandoned, report.delivered, report.lease_lost), (3, 0, 0));
    assert_eq!(states(&store, ids).await, [State::Processing; 3]);
    sleep(LEASE).await;
    let report = drain(&store, Broker::willing(), config()).await;
    assert_eq!(
        report.delivered, 3,
        "the database freed them, and no attempt was counted"
    );
}

#[tokio::test(start_paused = true)]
async fn a_relay_that_dies_in_the_middle_leaves_its_rows_as_they_were() {
    let store = store(LOCKED);
    enqueue(&store, ["1", "slow", "a1"]).await;
    let (_shutdown, relay) = start(&store, broker(), config());
    sleep(SECOND).await;
    relay.abort();
    assert!(relay.await.unwrap_err().is_cancelled());
    assert_eq!(drain(&store, Broker::willing(), config()).await.delivered, 0);
    sleep(LEASE).await;
    let broker = Broker::willing();
    assert_eq!(drain(&store, broker.clone(), config()).await.delivered, 3);
    assert_eq!(
        broker.attempts_of("slow")[0].1,
        1,
        "the attempt went with the transaction"
    );
}
