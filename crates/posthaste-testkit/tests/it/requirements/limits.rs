//! Limits and versions that a row brings along.

use posthaste_core::lifecycle::State;
use posthaste_core::{AdminStore, Outcome, PublishError};
use posthaste_relay::Relay;
use posthaste_testkit::MemoryTable;
use tokio::time::{sleep, timeout};

use super::broker::{Broker, busy};
use super::{LEASE, MINUTE, SECOND, config, drain, enqueue, start, states, store};

#[tokio::test(start_paused = true)]
async fn a_row_dies_at_its_own_limit() {
    let uncounted = MemoryTable::new().without_attempts(true);
    for table in [MemoryTable::new(), uncounted] {
        let store = store(table);
        let ids = enqueue(&store, ["1", "2", "3"]).await;
        store.limit_attempts(ids[0], 2);
        store.limit_attempts(ids[2], 7);
        let broker = Broker::new(|_, _| busy());
        let (shutdown, relay) = start(&store, broker.clone(), config());
        sleep(SECOND * 10).await;
        shutdown.cancel();
        relay.await.unwrap();
        let attempts = ["1", "2", "3"].map(|payload| broker.attempts_of(payload).len());
        assert_eq!(attempts, [2, 5, 7], "below, at and above the policy's");
        assert_eq!(states(&store, ids).await, [State::Dead; 3]);
        let error = store.show(ids[0]).await.unwrap().unwrap().last_error.unwrap();
        assert_eq!(error, "gave up after 2 attempts: the topic is busy");
    }
}

/// A limit that is lowered below what was used already ends the row without another attempt.
#[tokio::test(start_paused = true)]
async fn a_row_above_its_own_limit_is_swept() {
    let store = store(MemoryTable::new());
    let [id] = enqueue(&store, ["1"]).await;
    let broker = Broker::new(|_, _| busy());
    drain(&store, broker.clone(), config()).await;
    store.limit_attempts(id, 1);
    sleep(SECOND).await;
    let report = drain(&store, broker.clone(), config()).await;
    assert_eq!((report.died, broker.tried().len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_row_that_was_changed_meanwhile_is_a_lost_lease() {
    let store = store(MemoryTable::new().versioned(true));
    let ids = enqueue(&store, ["1", "2"]).await;
    let broker = Broker::slow(|_, _| (SECOND * 2, Outcome::DELIVERED));
    let (shutdown, relay) = start(&store, broker.clone(), config());
    sleep(SECOND).await;
    store.change_version(ids[0]);
    sleep(SECOND * 2).await;
    assert_eq!(states(&store, ids).await, [State::Processing, State::Delivered]);
    sleep(LEASE * 2).await;
    shutdown.cancel();
    let report = relay.await.unwrap();
    assert_eq!((report.lease_lost, report.delivered), (1, 2), "and is delivered again");
    assert_eq!(broker.attempts_of("1").len(), 2);
}

/// The first failure of a relay says little about its broker, but no message must die of it either.
#[tokio::test(start_paused = true)]
async fn an_outage_kills_no_message_however_often_relays_are_started() {
    for place in [None, Some("orders")] {
        let store = store(MemoryTable::new());
        let ids = enqueue(&store, ["1", "a1", "a2"]).await;
        let broker = Broker::new(move |_, _| {
            let refused = PublishError::transport("connection refused");
            Outcome::Failed(place.map_or(refused.clone(), |place| refused.at(place)))
        });
        for _ in 0..20 {
            let relay = Relay::new(store.clone(), broker.clone()).config(config());
            let drained = timeout(MINUTE, relay.drain()).await.expect("the drain ends");
            drop(drained);
            sleep(MINUTE * 10).await;
        }
        assert!(broker.tried().len() >= 20, "each relay tried");
        drain(&store, Broker::willing(), config()).await;
        assert_eq!(states(&store, ids).await, [State::Delivered; 3], "{place:?}");
    }
}
