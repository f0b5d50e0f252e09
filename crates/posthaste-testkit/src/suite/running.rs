//! The engine while it runs: leases of slow work, stopping, and what may be in flight.

use posthaste_core::RelayStore;
use posthaste_core::lifecycle::{State, Verdict};
use posthaste_relay::RelayConfig;

use super::engine::{broker, config, drain, eventually, short, start};
use super::steps::{LEASE_AND_MORE, SECOND, Worker, enqueue_new, plain, record, settle, state};
use crate::RecordingPublisher;
use crate::backend::Backend;

/// Proves pitfall 6.
pub async fn a_slow_publication_keeps_its_lease<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [plain("1")]).await;
    let broker = broker();
    broker.hang();
    let (shutdown, slow) = start(b, broker.clone(), short());
    broker.wait_until_hanging(1).await;
    let first = record(b, ids[0]).await.locked_until.expect("it is leased");
    let renewed = async || {
        record(b, ids[0])
            .await
            .locked_until
            .is_some_and(|until| until - first >= chrono::TimeDelta::seconds(3))
    };
    eventually("the lease to be renewed for its length", renewed).await;
    let other = drain(b, RecordingPublisher::new(), short()).await;
    assert_eq!(other.delivered, 0, "nobody else may have it");
    broker.release();
    broker.inner().wait_for(1).await;
    shutdown.cancel();
    let report = slow.await.expect("the relay does not panic");
    assert_eq!((report.delivered, report.lease_lost, report.abandoned), (1, 0, 0));
    assert_eq!(record(b, ids[0]).await.attempts, 1);
}

/// Proves B9 and pitfall 6.
pub async fn an_outcome_that_comes_after_the_lease_is_counted_and_changes_nothing<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [plain("1")]).await;
    let broker = broker();
    broker.hang();
    // With one place in flight it does not claim anew, so it cannot take over from itself.
    let single = RelayConfig {
        batch_size: 1,
        max_in_flight: 1,
        ..config()
    };
    let (shutdown, slow) = start(b, broker.clone(), single);
    broker.wait_until_hanging(1).await;
    b.pass_time(LEASE_AND_MORE).await;
    let other = Worker::new().claim(b, 10).await;
    assert_eq!(other.ids(), ids);
    let held = record(b, ids[0]).await;
    broker.release();
    broker.inner().wait_for(1).await;
    shutdown.cancel();
    let report = slow.await.expect("the relay does not panic");
    assert_eq!((report.delivered, report.lease_lost), (0, 1));
    assert_eq!(record(b, ids[0]).await, held);
    assert_eq!(settle(b, vec![other.verdict(ids[0], Verdict::Delivered)]).await, []);
}

/// Proves B12.
pub async fn a_relay_that_stops_gives_back_what_it_has_not_handed_over<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [plain("1"), plain("2")]).await;
    let broker = broker();
    broker.hang();
    let (shutdown, relay) = start(b, broker.clone(), config());
    broker.wait_until_hanging(1).await;
    shutdown.cancel();
    // The publisher asks again before it sends, and is told that the relay stops.
    eventually("the relay to stop", async || {
        broker.release();
        relay.is_finished()
    })
    .await;
    let report = relay.await.expect("the relay does not panic");
    if report.delivered == 0 {
        assert_eq!((report.released, report.abandoned), (2, 0));
        let row = record(b, ids[0]).await;
        assert_eq!((row.state, row.attempts, row.locked_until), (State::Pending, 0, None));
    }
    drain(b, broker.clone(), config()).await;
    broker.inner().assert_delivered_once(&ids);
}

/// What was handed over may have been sent: giving it back could deliver it out of order.
///
/// Proves B12.
pub async fn a_relay_that_must_stop_leaves_unanswered_messages_to_their_lease<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [plain("1")]).await;
    let broker = broker();
    broker.hang();
    let (shutdown, relay) = start(
        b,
        broker.clone(),
        RelayConfig {
            shutdown_grace: SECOND / 10,
            ..config()
        },
    );
    broker.wait_until_hanging(1).await;
    shutdown.cancel();
    let report = relay.await.expect("the relay does not panic");
    assert_eq!(report.abandoned, 1);
    assert_eq!(state(b, ids[0]).await, State::Processing);
    broker.heal();
    b.pass_time(LEASE_AND_MORE).await;
    drain(b, broker.clone(), config()).await;
    assert_eq!(broker.inner().ids(), ids);
}

/// Proves B6.
pub async fn the_next_batch_is_claimed_while_this_one_is_in_flight_up_to_a_bound<B: Backend>(b: &B) {
    let ids = enqueue_new(b, (0..100).map(|n| plain(&n.to_string()))).await;
    let broker = broker();
    broker.hang();
    let bounded = RelayConfig {
        batch_size: 10,
        max_in_flight: 25,
        ..config()
    };
    let (shutdown, relay) = start(b, broker.clone(), bounded);
    broker.wait_until_hanging(2).await;
    let processing = b.store().stats("default").await.expect("stats work").processing;
    assert_eq!(processing, 20, "two batches, since a third would exceed the bound");
    broker.release();
    broker.inner().wait_for(100).await;
    shutdown.cancel();
    relay.await.expect("the relay does not panic");
    broker.inner().assert_delivered_once(&ids);
}

/// Proves B6.
pub async fn bytes_in_flight_are_bounded_too<B: Backend>(b: &B) {
    enqueue_new(b, (0..10).map(|_| plain(&"x".repeat(1000)))).await;
    let broker = broker();
    broker.hang();
    let (shutdown, relay) = start(
        b,
        broker.clone(),
        RelayConfig {
            max_in_flight_bytes: 3500,
            ..config()
        },
    );
    broker.wait_until_hanging(1).await;
    let processing = b.store().stats("default").await.expect("stats work").processing;
    assert!(processing <= 4, "{processing} rows of 1,000 bytes are in flight");
    broker.release();
    broker.inner().wait_for(10).await;
    shutdown.cancel();
    relay.await.expect("the relay does not panic");
}
