//! Tables without a count of attempts: all of them are made within one claim.

use std::time::Duration;

use posthaste_core::lifecycle::State;
use posthaste_core::{AdminStore, Outcome, PublishError};
use posthaste_relay::RelayConfig;
use posthaste_testkit::{MemoryLease, MemoryTable};
use tokio::time::{Instant, sleep};

use super::broker::{Broker, busy};
use super::{LEASE, MINUTE, SECOND, config, drain, enqueue, start, state, states, store};

/// Neither attempts nor leases.
const BARE: MemoryTable = MemoryTable::new().lease(MemoryLease::RowLocks).without_attempts(true);

/// Leases but no attempts.
const UNCOUNTED: MemoryTable = BARE.lease(MemoryLease::Until);

#[tokio::test(start_paused = true)]
async fn a_message_is_tried_again_after_each_backoff_and_dies_of_the_last_failure() {
    for table in [BARE, UNCOUNTED] {
        let store = store(table);
        let [id] = enqueue(&store, ["1"]).await;
        let broker = Broker::new(|_, attempt| {
            let why = format!("busy for the {attempt}. time");
            Outcome::Failed(PublishError::transient(why))
        });
        let report = drain(&store, broker.clone(), config()).await;
        let attempts = broker.attempts_of("1");
        assert_eq!(attempts, [(0, 1), (100, 2), (300, 3), (700, 4), (1_500, 5)]);
        let row = store.show(id).await.unwrap().unwrap();
        assert_eq!(row.state, State::Dead);
        assert_eq!(
            row.last_error.as_deref(),
            Some("gave up after 5 attempts: busy for the 5. time")
        );
        assert_eq!((report.retried, report.died, report.lease_lost), (4, 1, 0));
    }
}

/// Proves pitfall 5.
#[tokio::test(start_paused = true)]
async fn a_key_waits_for_its_head_and_nobody_waits_for_another_key() {
    for table in [BARE, UNCOUNTED] {
        let store = store(table);
        let ids = enqueue(&store, ["a1", "b1", "a2", "1", "a3", "b2"]).await;
        let broker = Broker::new(|payload, attempt| match (payload, attempt) {
            ("a1", 1 | 2) | ("a3", 1) => busy(),
            _ => Outcome::DELIVERED,
        });
        let report = drain(&store, broker.clone(), config()).await;
        assert_eq!(broker.attempts_of("a1"), [(0, 1), (100, 2), (300, 3)]);
        assert_eq!(
            broker.attempts_of("a2"),
            [(300, 1)],
            "never tried before, so for the first time"
        );
        assert_eq!(broker.attempts_of("a3"), [(300, 1), (400, 2)]);
        for other in ["b1", "b2", "1"] {
            assert_eq!(broker.attempts_of(other), [(0, 1)], "{other} is not held up");
        }
        assert_eq!((report.delivered, report.retried, report.released), (6, 3, 0));
        assert_eq!(states(&store, ids).await, [State::Delivered; 6]);
    }
}

/// A call of the publisher that takes long for some messages does not hold up the others' retries, nor their settlement.
#[tokio::test(start_paused = true)]
async fn a_retry_does_not_wait_for_a_slow_neighbour() {
    let store = store(UNCOUNTED);
    let ids = enqueue(&store, ["a1", "b1"]).await;
    let broker = Broker::slow(|payload, attempt| match (payload, attempt) {
        ("b1", _) => (SECOND * 10, Outcome::DELIVERED),
        (_, 1) => (Duration::ZERO, busy()),
        _ => (Duration::ZERO, Outcome::DELIVERED),
    });
    let (shutdown, relay) = start(&store, broker.clone(), config());
    sleep(SECOND).await;
    assert_eq!(broker.attempts_of("a1"), [(0, 1), (100, 2)]);
    assert_eq!(states(&store, ids).await, [State::Delivered, State::Processing]);
    sleep(SECOND * 10).await;
    shutdown.cancel();
    assert_eq!(relay.await.unwrap().delivered, 2);
}

#[tokio::test(start_paused = true)]
async fn a_relay_that_stops_gives_waiting_messages_back_at_once() {
    for table in [BARE, UNCOUNTED] {
        let store = store(table);
        let ids = enqueue(&store, ["a1", "a2", "b1"]).await;
        let broker = Broker::new(|payload, _| if payload == "a1" { busy() } else { Outcome::DELIVERED });
        let mut patient = config();
        patient.retry.backoff = posthaste_core::Backoff::Schedule { delays: vec![MINUTE] };
        let (shutdown, relay) = start(&store, broker.clone(), patient);
        sleep(SECOND).await;
        let stopped = Instant::now();
        shutdown.cancel();
        let report = relay.await.unwrap();
        assert!(stopped.elapsed() < SECOND, "{:?}", stopped.elapsed());
        assert_eq!((report.delivered, report.released, report.died), (1, 2, 0));
        assert_eq!((report.abandoned, report.lease_lost), (0, 0));
        let expected = [State::Pending, State::Pending, State::Delivered];
        assert_eq!(states(&store, ids).await, expected);
        assert_eq!(broker.attempts_of("a1").len(), 1);
    }
}

/// Proves pitfall 6.
#[tokio::test(start_paused = true)]
async fn the_lease_is_renewed_while_messages_wait() {
    for table in [BARE, UNCOUNTED] {
        let store = store(table);
        let [id] = enqueue(&store, ["a1"]).await;
        let broker = Broker::new(|_, attempt| if attempt == 1 { busy() } else { Outcome::DELIVERED });
        let mut patient = config();
        patient.retry.backoff = posthaste_core::Backoff::Schedule {
            delays: vec![LEASE * 5],
        };
        let (shutdown, relay) = start(&store, broker.clone(), patient.clone());
        for _ in 0..9 {
            sleep(LEASE / 2).await;
            let other = drain(&store, Broker::willing(), patient.clone()).await;
            assert_eq!(other.delivered, 0, "nobody else may have it");
        }
        sleep(LEASE).await;
        shutdown.cancel();
        let report = relay.await.unwrap();
        assert_eq!((report.delivered, report.lease_lost), (1, 0));
        assert_eq!(state(&store, id).await, State::Delivered);
    }
}

#[tokio::test(start_paused = true)]
async fn what_waits_when_the_circuit_opens_is_given_back_and_uses_no_attempt() {
    for table in [BARE, UNCOUNTED] {
        let store = store(table);
        let ids = enqueue(&store, ["a1", "a2", "1", "2", "3", "4", "5", "6"]).await;
        let broker = Broker::new(|payload, _| match payload {
            "a1" => busy(),
            _ => Outcome::Failed(PublishError::transport("connection refused")),
        });
        let (shutdown, relay) = start(&store, broker.clone(), config());
        sleep(SECOND * 20).await;
        assert_eq!(broker.attempts_of("a1"), [(0, 1)], "its retry is refused");
        shutdown.cancel();
        let report = relay.await.unwrap();
        assert_eq!((report.died, report.delivered, report.lease_lost), (0, 0, 0));
        assert_eq!(states(&store, ids).await, [State::Pending; 8]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_whose_bytes_were_changed_is_dead_at_once_all_the_same() {
    let store = store(BARE);
    let ids = enqueue(&store, ["a1", "1"]).await;
    store.corrupt_payload(ids[0]);
    let broker = Broker::willing();
    let report = drain(&store, broker.clone(), config()).await;
    assert_eq!((report.delivered, report.died, report.retried), (1, 1, 0));
    assert_eq!(states(&store, ids).await, [State::Dead, State::Delivered]);
    assert_eq!(broker.tried(), ["1"]);
}

#[tokio::test(start_paused = true)]
async fn what_can_never_be_published_is_dead_at_once_and_says_why() {
    for table in [MemoryTable::default(), BARE] {
        let store = store(table);
        let ids = enqueue(&store, ["a1", "1"]).await;
        store.make_unpublishable(ids[0], "`OrderCreated` gives no topic");
        let broker = Broker::willing();
        let report = drain(&store, broker.clone(), config()).await;
        assert_eq!((report.delivered, report.died), (1, 1));
        assert_eq!(broker.tried(), ["1"]);
        let row = store.show(ids[0]).await.unwrap().unwrap();
        assert_eq!(row.last_error.as_deref(), Some("`OrderCreated` gives no topic"));
    }
}

/// Publishers that hang or forget: what they leave unanswered is tried again too, in order.
#[tokio::test(start_paused = true)]
async fn a_hanging_publisher_is_given_up_and_its_messages_are_tried_again_in_order() {
    let store = store(BARE);
    enqueue(&store, ["a1", "a2", "b1"]).await;
    let broker = Broker::slow(|payload, attempt| match (payload, attempt) {
        ("a1", 1) => (MINUTE * 60, Outcome::DELIVERED),
        _ => (Duration::ZERO, Outcome::DELIVERED),
    });
    let brisk = RelayConfig {
        publish_timeout: SECOND,
        ..config()
    };
    let report = drain(&store, broker.clone(), brisk).await;
    assert_eq!(broker.attempts_of("a1"), [(0, 1), (1_100, 2)]);
    assert_eq!(
        broker.attempts_of("a2"),
        [(1_100, 2)],
        "nobody knows whether it was sent"
    );
    assert_eq!(broker.tried(), ["a1", "b1", "a1", "a2"]);
    assert_eq!((report.delivered, report.retried), (3, 2));
}
