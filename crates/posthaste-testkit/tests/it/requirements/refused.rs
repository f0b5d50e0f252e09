//! Verdicts that the database refuses, on tables without leases: the row is free again at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use posthaste_core::lifecycle::State;
use posthaste_core::{Outcome, PublishError};
use posthaste_relay::{Relay, RelayError};
use posthaste_testkit::{FaultyStore, MemoryLease, MemoryTable};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::broker::{Broker, busy};
use super::{LEASE, MINUTE, SECOND, config, enqueue, state, states, store};

const LOCKED: MemoryTable = MemoryTable::new().lease(MemoryLease::RowLocks);

const LOCKED_WITHOUT_ATTEMPTS: MemoryTable = LOCKED.without_attempts(true);

#[tokio::test(start_paused = true)]
async fn a_message_whose_delivery_is_refused_is_published_once_and_written_when_the_cause_is_gone() {
    for table in [LOCKED, LOCKED_WITHOUT_ATTEMPTS] {
        let memory = store(table);
        let ids = enqueue(&memory, ["1", "a1", "a2", "2"]).await;
        let refusing = FaultyStore::new(memory.clone());
        refusing.refuse([ids[1]]);
        let (broker, shutdown) = (Broker::willing(), CancellationToken::new());
        let relay = Relay::new(refusing.clone(), broker.clone()).config(config());
        let relay = tokio::spawn(relay.run_until(shutdown.clone()));
        sleep(MINUTE * 10).await;
        for id in [ids[0], ids[2], ids[3]] {
            assert_eq!(state(&memory, id).await, State::Delivered);
        }
        assert_eq!(state(&memory, ids[1]).await, State::Pending);
        for payload in ["1", "a1", "a2", "2"] {
            assert_eq!(broker.attempts_of(payload).len(), 1, "{payload}");
        }
        assert!(refusing.refusals() < 30, "tried once a minute: {}", refusing.refusals());
        refusing.allow_all();
        sleep(MINUTE * 2).await;
        assert_eq!(state(&memory, ids[1]).await, State::Delivered);
        assert_eq!(broker.attempts_of("a1").len(), 1);
        shutdown.cancel();
        let report = relay.await.unwrap().unwrap();
        assert_eq!((report.delivered, report.refused), (4, 0));
    }
}

/// Until it can be written down what was wrong may be fixed, or the message replayed.
#[tokio::test(start_paused = true)]
async fn a_message_does_not_die_of_a_verdict_that_was_refused_before() {
    for table in [LOCKED, LOCKED_WITHOUT_ATTEMPTS] {
        let memory = store(table);
        let [id] = enqueue(&memory, ["1"]).await;
        let refusing = FaultyStore::new(memory.clone());
        refusing.refuse([id]);
        let fixed = Arc::new(AtomicBool::new(false));
        let is_fixed = Arc::clone(&fixed);
        let broker = Broker::new(move |_, _| {
            if is_fixed.load(Ordering::SeqCst) {
                Outcome::DELIVERED
            } else {
                Outcome::Failed(PublishError::permanent("not this one"))
            }
        });
        let shutdown = CancellationToken::new();
        let relay = Relay::new(refusing.clone(), broker.clone()).config(config());
        let relay = tokio::spawn(relay.run_until(shutdown.clone()));
        sleep(MINUTE * 10).await;
        let tries = broker.attempts_of("1").len();
        assert!((2..20).contains(&tries), "now and then: {tries}");
        fixed.store(true, Ordering::SeqCst);
        refusing.allow_all();
        sleep(MINUTE * 2).await;
        assert_eq!(state(&memory, id).await, State::Delivered);
        assert_eq!(broker.attempts_of("1").len(), tries + 1);
        shutdown.cancel();
        relay.await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_is_refused_is_not_overtaken() {
    let memory = store(LOCKED);
    let ids = enqueue(&memory, ["a1", "a2", "b1"]).await;
    let refusing = FaultyStore::new(memory.clone());
    refusing.refuse([ids[0]]);
    let broker = Broker::slow(|payload, attempt| match (payload, attempt) {
        ("a1", 1) => (Duration::ZERO, busy()),
        _ => (Duration::ZERO, Outcome::DELIVERED),
    });
    let shutdown = CancellationToken::new();
    let relay = Relay::new(refusing.clone(), broker.clone()).config(config());
    let relay = tokio::spawn(relay.run_until(shutdown.clone()));
    sleep(MINUTE).await;
    assert_eq!(broker.attempts_of("a1").len(), 1);
    assert_eq!(broker.attempts_of("a2").len(), 0, "it waits for its head");
    assert_eq!(broker.attempts_of("b1").len(), 1);
    refusing.allow_all();
    sleep(MINUTE * 3).await;
    assert_eq!(state(&memory, ids[1]).await, State::Delivered);
    shutdown.cancel();
    relay.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_drain_does_not_go_round_and_round() {
    let memory = store(LOCKED);
    let ids = enqueue(&memory, ["1", "2"]).await;
    let refusing = FaultyStore::new(memory.clone());
    refusing.refuse([ids[0]]);
    let broker = Broker::willing();
    let relay = Relay::new(refusing.clone(), broker.clone()).config(config());
    let drained = timeout(SECOND * 30, relay.drain()).await.expect("the drain ends");
    let Err(RelayError::Unsettled { report }) = drained else {
        panic!("{drained:?}")
    };
    assert_eq!((report.delivered, report.refused, report.undelivered), (1, 1, 1));
    assert_eq!(broker.attempts_of("1").len(), 1);
}

/// The culprit is found at once, and not when its verdict is tried again.
#[tokio::test(start_paused = true)]
async fn neighbours_do_not_wait_for_a_refused_verdict() {
    let memory = store(MemoryTable::default());
    let ids = enqueue(&memory, ["1", "2", "3", "4", "5", "6", "7"]).await;
    let refusing = FaultyStore::new(memory.clone());
    refusing.refuse([ids[2]]);
    let shutdown = CancellationToken::new();
    let relay = Relay::new(refusing, Broker::willing()).config(config());
    let relay = tokio::spawn(relay.run_until(shutdown.clone()));
    sleep(SECOND / 2).await;
    let mut expected = [State::Delivered; 7];
    expected[2] = State::Processing;
    assert_eq!(states(&memory, ids).await, expected);
    shutdown.cancel();
    let report = relay.await.unwrap().unwrap();
    assert_eq!((report.delivered, report.refused), (6, 1));
}

/// The lease may run out all the same, as when the database was unavailable for long.
#[tokio::test(start_paused = true)]
async fn a_row_that_is_claimed_again_is_not_published_again() {
    let memory = store(MemoryTable::default());
    let ids = enqueue(&memory, ["1"]).await;
    let refusing = FaultyStore::new(memory.clone());
    refusing.refuse(ids);
    let (broker, shutdown) = (Broker::willing(), CancellationToken::new());
    let relay = Relay::new(refusing.clone(), broker.clone()).config(config());
    let relay = tokio::spawn(relay.run_until(shutdown.clone()));
    for _ in 0..3 {
        sleep(SECOND * 5).await;
        memory.clock().advance(LEASE * 2);
    }
    sleep(SECOND * 5).await;
    assert_eq!(broker.attempts_of("1").len(), 1);
    refusing.allow_all();
    sleep(MINUTE * 2).await;
    assert_eq!(state(&memory, ids[0]).await, State::Delivered);
    shutdown.cancel();
    let report = relay.await.unwrap().unwrap();
    assert_eq!((report.delivered, report.refused), (1, 0));
    assert_eq!(broker.attempts_of("1").len(), 1);
}

/// A claim whose locks are lost time and again, whatever the reason.
#[tokio::test(start_paused = true)]
async fn a_drain_whose_claims_are_lost_ends_with_an_error_and_publishes_once() {
    let memory = store(LOCKED);
    enqueue(&memory, ["1", "2"]).await;
    let losing = FaultyStore::new(memory);
    losing.lose_all();
    let broker = Broker::willing();
    let relay = Relay::new(losing.clone(), broker.clone()).config(config());
    let drained = timeout(SECOND * 30, relay.drain()).await.expect("the drain ends");
    let Err(RelayError::Unsettled { report }) = drained else {
        panic!("{drained:?}")
    };
    assert_eq!((report.delivered, report.undelivered), (0, 2));
    assert!(report.lease_lost >= 2);
    assert_eq!(broker.tried().len(), 2);
}

/// Whoever waits for an answer and gets none tries again, and then the row is not his any more. He has lost nothing.
#[tokio::test(start_paused = true)]
async fn a_verdict_whose_answer_was_lost_is_no_lost_lease() {
    let memory = store(MemoryTable::default());
    let ids = enqueue(&memory, ["1", "2"]).await;
    let faulty = FaultyStore::new(memory.clone());
    faulty.lose_answers(1);
    let broker = Broker::willing();
    let relay = Relay::new(faulty, broker.clone()).config(config());
    let report = timeout(MINUTE, relay.drain()).await.expect("the drain ends").unwrap();
    assert_eq!((report.delivered, report.lease_lost, report.undelivered), (2, 0, 0));
    assert_eq!(states(&memory, ids).await, [State::Delivered; 2]);
    assert_eq!(broker.tried().len(), 2);
}

/// If the lease was over before the answer came, nobody knows.
#[tokio::test(start_paused = true)]
async fn a_verdict_whose_answer_came_after_its_lease_was_over_may_be_lost() {
    let memory = store(MemoryTable::default());
    enqueue(&memory, ["1"]).await;
    let faulty = FaultyStore::new(memory.clone());
    let broker = Broker::willing();
    let shutdown = CancellationToken::new();
    let relay = Relay::new(faulty.clone(), broker.clone()).config(config());
    faulty.lose_answers(1);
    let relay = tokio::spawn(relay.run_until(shutdown.clone()));
    sleep(Duration::from_millis(20)).await;
    faulty.hang();
    sleep(LEASE * 2).await;
    faulty.release();
    sleep(SECOND * 10).await;
    shutdown.cancel();
    let report = relay.await.unwrap().unwrap();
    assert_eq!((report.delivered, report.lease_lost), (0, 1));
}

/// A message that was only to be given back is still to be published: it is not held because that was refused.
#[tokio::test(start_paused = true)]
async fn a_message_whose_release_is_refused_is_published_when_its_lease_is_over() {
    let memory = store(MemoryTable::default());
    let ids = enqueue(&memory, ["a1", "a2"]).await;
    let refusing = FaultyStore::new(memory.clone());
    let broker = Broker::slow(|payload, attempt| match (payload, attempt) {
        // The rest of its lane is given back.
        ("a1", 1) => (SECOND, busy()),
        _ => (Duration::ZERO, Outcome::DELIVERED),
    });
    let shutdown = CancellationToken::new();
    let relay = Relay::new(refusing.clone(), broker.clone()).config(config());
    let relay = tokio::spawn(relay.run_until(shutdown.clone()));
    sleep(SECOND / 2).await;
    refusing.refuse([ids[1]]);
    refusing.refuse_releases([ids[1]]);
    sleep(SECOND).await;
    assert_eq!(broker.attempts_of("a2").len(), 0);
    sleep(LEASE * 2).await;
    assert_eq!(
        broker.attempts_of("a2").len(),
        1,
        "though nothing can be written of it yet"
    );
    refusing.allow_all();
    sleep(MINUTE * 2).await;
    assert_eq!(states(&memory, ids).await, [State::Delivered; 2]);
    assert_eq!(broker.attempts_of("a2").len(), 1);
    shutdown.cancel();
    relay.await.unwrap().unwrap();
}
