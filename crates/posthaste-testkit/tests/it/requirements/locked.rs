//! Rows that another transaction has locked while they are in flight.

use std::time::Duration;

use posthaste_core::Outcome;
use posthaste_core::lifecycle::State;
use posthaste_relay::{Relay, RelayConfig, RelayError};
use posthaste_testkit::{FaultyStore, MemoryStore, MemoryTable, MemoryTx};
use tokio::time::{Instant, sleep, timeout};

use super::broker::{Broker, busy};
use super::{LEASE, MINUTE, SECOND, config, drain, enqueue, start, state, states, store};

const PAYLOADS: [&str; 5] = ["1", "2", "3", "4", "5"];

/// Every message takes a second, so that its row can be locked meanwhile.
fn slow() -> Broker {
    Broker::slow(|_, _| (SECOND, Outcome::DELIVERED))
}

fn lock(memory: &MemoryStore, id: posthaste_core::MessageId) -> MemoryTx {
    let mut tx = memory.begin();
    tx.lock(id);
    tx
}

fn others_delivered() -> [State; 5] {
    let mut expected = [State::Delivered; 5];
    expected[2] = State::Processing;
    expected
}

#[tokio::test(start_paused = true)]
async fn a_locked_row_holds_up_no_neighbour_and_is_written_soon_after_the_lock_is_gone() {
    let memory = store(MemoryTable::default());
    let ids = enqueue(&memory, PAYLOADS).await;
    let broker = slow();
    let (shutdown, relay) = start(&memory, broker.clone(), config());
    sleep(SECOND / 2).await;
    let tx = lock(&memory, ids[2]);
    sleep(SECOND).await;
    assert_eq!(states(&memory, ids).await, others_delivered());
    // Nobody can have it while it is locked, but its lease runs out.
    sleep(LEASE * 3).await;
    assert_eq!(states(&memory, ids).await, others_delivered());
    tx.rollback();
    sleep(SECOND * 3).await;
    assert_eq!(states(&memory, ids).await, [State::Delivered; 5]);
    shutdown.cancel();
    let report = relay.await.unwrap();
    assert_eq!((report.delivered, report.busy, report.died), (5, 0, 0));
    assert_eq!(broker.tried().len(), 5, "each was published once");
}

/// It is still to be published, and does not have to wait for its lease to run out.
#[tokio::test(start_paused = true)]
async fn a_locked_row_that_was_to_be_given_back_is_when_the_lock_is_gone() {
    let memory = store(MemoryTable::default());
    let ids = enqueue(&memory, ["a1", "a2"]).await;
    let broker = Broker::slow(|payload, attempt| match (payload, attempt) {
        // The rest of its lane is given back.
        ("a1", 1) => (SECOND, busy()),
        _ => (Duration::ZERO, Outcome::DELIVERED),
    });
    let (shutdown, relay) = start(&memory, broker.clone(), config());
    sleep(SECOND / 2).await;
    let tx = lock(&memory, ids[1]);
    sleep(SECOND * 2).await;
    assert_eq!(state(&memory, ids[1]).await, State::Processing);
    tx.rollback();
    sleep(SECOND * 3).await;
    assert_eq!(states(&memory, ids).await, [State::Delivered; 2]);
    assert_eq!(broker.attempts_of("a2").len(), 1);
    shutdown.cancel();
    relay.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_a_locked_row_and_for_what_stands_behind_it() {
    let memory = store(MemoryTable::default());
    let ids = enqueue(&memory, ["a1"]).await;
    let (mut locked, mut behind) = (None, None);
    let draining = drain(&memory, slow(), config());
    let locking = async {
        sleep(SECOND / 2).await;
        locked = Some(lock(&memory, ids[0]));
        behind = Some(enqueue(&memory, ["a2"]).await);
        sleep(SECOND * 5).await;
        locked.take();
    };
    let (report, ()) = tokio::join!(draining, locking);
    assert_eq!((report.delivered, report.busy, report.undelivered), (2, 0, 0));
    assert_eq!(states(&memory, behind.unwrap()).await, [State::Delivered]);
}

#[tokio::test(start_paused = true)]
async fn a_drain_ends_with_an_error_if_a_lock_is_not_let_go() {
    let memory = store(MemoryTable::default());
    let ids = enqueue(&memory, PAYLOADS).await;
    let broker = slow();
    let begun = Instant::now();
    let relay = Relay::new(memory.clone(), broker.clone()).config(config());
    let locking = async {
        sleep(SECOND / 2).await;
        lock(&memory, ids[2])
    };
    let (drained, _tx) = tokio::join!(timeout(MINUTE, relay.drain()), locking);
    let drained = drained.expect("the drain ends");
    let Err(error @ RelayError::Unsettled { report }) = &drained else {
        panic!("{drained:?}")
    };
    assert!(error.to_string().contains("1 rows were locked"), "{error}");
    assert_eq!((report.delivered, report.busy, report.undelivered), (4, 1, 1));
    assert!(begun.elapsed() > SECOND * 5, "it waits a while: {:?}", begun.elapsed());
    assert_eq!(broker.tried().len(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_relay_that_stops_waits_for_a_locked_row_no_longer_than_its_grace_and_says_so() {
    let memory = store(MemoryTable::default());
    let ids = enqueue(&memory, PAYLOADS).await;
    let (shutdown, relay) = start(&memory, slow(), config());
    sleep(SECOND / 2).await;
    let _tx = lock(&memory, ids[2]);
    sleep(SECOND).await;
    let begun = Instant::now();
    shutdown.cancel();
    let report = relay.await.unwrap();
    assert_eq!((report.delivered, report.busy), (4, 1));
    let grace = config().shutdown_grace;
    assert!(
        begun.elapsed() >= grace && begun.elapsed() < grace + SECOND,
        "{:?}",
        begun.elapsed()
    );
}

/// A trigger may ask for another transaction's lock, and then it is the whole call that fails.
#[tokio::test(start_paused = true)]
async fn a_verdict_that_meets_a_lock_elsewhere_holds_up_no_other() {
    let memory = store(MemoryTable::default());
    let ids = enqueue(&memory, PAYLOADS).await;
    let contended = FaultyStore::new(memory.clone());
    contended.contend([ids[2]]);
    let broker = Broker::willing();
    let shutdown = tokio_util::sync::CancellationToken::new();
    let short = RelayConfig {
        lease: SECOND,
        poll_interval: SECOND / 20,
        max_poll_interval: SECOND / 20,
        ..config()
    };
    let relay = Relay::new(contended.clone(), broker.clone()).config(short);
    let relay = tokio::spawn(relay.run_until(shutdown.clone()));
    sleep(SECOND).await;
    assert_eq!(states(&memory, ids).await, others_delivered());
    sleep(MINUTE).await;
    assert_eq!(states(&memory, ids).await, others_delivered());
    contended.allow_all();
    sleep(SECOND * 3).await;
    assert_eq!(states(&memory, ids).await, [State::Delivered; 5]);
    shutdown.cancel();
    let report = relay.await.unwrap().unwrap();
    assert_eq!((report.delivered, report.busy, report.refused), (5, 0, 0));
    assert_eq!(broker.tried().len(), 5);
}
