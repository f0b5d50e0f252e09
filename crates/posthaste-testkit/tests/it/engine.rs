//! The engine against a database and a publisher that misbehave, on a clock that does not have to be waited for.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use posthaste_core::lifecycle::State;
use posthaste_core::store::ProducerStore;
use posthaste_core::{AdminStore, Batch, Message, MessageId, OutboxOptions, Outcome, PublishError, Publisher, Report};
use posthaste_relay::{Relay, RelayConfig, RelayError, Retention};
use posthaste_testkit::{FaultyStore, MemoryStore, RecordingPublisher, TestClock};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_mins(1);

fn store() -> FaultyStore<MemoryStore> {
    FaultyStore::new(MemoryStore::with_clock(TestClock::ticking()))
}

async fn enqueue<const N: usize>(store: &FaultyStore<MemoryStore>, payloads: [&str; N]) -> [MessageId; N] {
    let messages = payloads.map(|payload| Message::new("orders", payload.to_owned()));
    let ids = messages.each_ref().map(|message| message.id);
    let options = OutboxOptions::default();
    let enqueued = store.inner().enqueue_and_commit(&options, messages.to_vec()).await;
    enqueued.unwrap();
    ids
}

async fn state(store: &FaultyStore<MemoryStore>, id: MessageId) -> State {
    store.inner().show(id).await.unwrap().unwrap().state
}

#[tokio::test(start_paused = true)]
async fn a_database_that_stops_answering_is_said_within_15_s_and_the_relay_goes_on_by_itself() {
    let (store, broker, shutdown) = (store(), RecordingPublisher::new(), CancellationToken::new());
    let relay = Relay::new(store.clone(), broker.clone());
    let health = relay.health();
    let relay = tokio::spawn(relay.run_until(shutdown.clone()));
    enqueue(&store, ["1"]).await;
    timeout(SECOND, broker.wait_for(1)).await.unwrap();
    sleep(SECOND).await;
    assert_eq!(health.problem(), None);
    store.hang();
    sleep(SECOND * 15).await;
    let problem = health.problem().expect("the relay is not healthy");
    assert!(
        problem.contains("claiming") && problem.contains("gave no answer for 10s"),
        "{problem}"
    );
    sleep(MINUTE * 5).await;
    assert!(!health.is_healthy());
    store.release();
    enqueue(&store, ["2"]).await;
    sleep(MINUTE * 2).await;
    assert_eq!(broker.deliveries().len(), 2);
    assert_eq!(health.problem(), None);
    shutdown.cancel();
    assert_eq!(relay.await.unwrap().unwrap().delivered, 2);
}

#[tokio::test(start_paused = true)]
async fn a_relay_ends_with_an_error_when_one_of_its_tasks_panics() {
    let store = store();
    store.panic_next_sweep();
    let relay = Relay::new(store, RecordingPublisher::new()).run_until(CancellationToken::new());
    let ended = timeout(MINUTE, relay).await.expect("it does not go on without it");
    let error = ended.unwrap_err();
    assert!(matches!(error, RelayError::Panicked { task: "cleaning up" }), "{error}");
}

/// A claim whose answer comes when most of its lease is over would be given back and claimed again without end.
#[tokio::test(start_paused = true)]
async fn what_a_slow_claim_brings_is_delivered() {
    let store = store();
    let ids = enqueue(&store, ["1"]).await;
    store.slow_claims(Duration::from_millis(2_700));
    let short = RelayConfig {
        lease: SECOND * 3,
        ..RelayConfig::default()
    };
    let (broker, shutdown) = (RecordingPublisher::new(), CancellationToken::new());
    let relay = Relay::new(store.clone(), broker.clone()).config(short);
    let relay = tokio::spawn(relay.run_until(shutdown.clone()));
    timeout(SECOND * 10, broker.wait_for(1)).await.expect("it is delivered");
    sleep(SECOND).await;
    assert_eq!(state(&store, ids[0]).await, State::Delivered);
    shutdown.cancel();
    assert_eq!(relay.await.unwrap().unwrap().released, 0);
}

#[tokio::test(start_paused = true)]
async fn a_drain_goes_on_after_deadlocks_and_loses_no_answers() {
    let store = store();
    enqueue(&store, ["1", "2", "3"]).await;
    let broker = RecordingPublisher::new();
    store.fail_claims(3);
    let one_by_one = RelayConfig {
        batch_size: 1,
        ..RelayConfig::default()
    };
    let relay = Relay::new(store, broker.clone()).config(one_by_one);
    assert_eq!(relay.drain().await.unwrap().delivered, 3);
}

/// Goes on in a task of its own when its call is given up, as a thread does that is blocked in a client library.
#[derive(Clone, Default)]
struct Stubborn {
    allowed: Arc<Mutex<Vec<bool>>>,
}

#[async_trait]
impl Publisher for Stubborn {
    async fn publish(&self, batch: Batch, _report: Report) {
        let allowed = Arc::clone(&self.allowed);
        tokio::spawn(async move {
            sleep(SECOND * 35).await;
            let place = batch.deliveries[0].place;
            allowed.lock().unwrap().push(batch.may_send(place));
        });
        std::future::pending::<()>().await;
    }

    fn name(&self) -> &'static str {
        "stubborn"
    }
}

/// Proves pitfall 6.
#[tokio::test(start_paused = true)]
async fn a_publisher_that_was_given_up_may_send_nothing_more() {
    let store = store();
    enqueue(&store, ["1"]).await;
    let stubborn = Stubborn::default();
    let shutdown = CancellationToken::new();
    let long = RelayConfig {
        lease: MINUTE * 10,
        ..RelayConfig::default()
    };
    let relay = Relay::new(store, stubborn.clone()).config(long);
    let relay = tokio::spawn(relay.run_until(shutdown.clone()));
    sleep(SECOND * 36).await;
    assert_eq!(*stubborn.allowed.lock().unwrap(), [false]);
    shutdown.cancel();
    relay.await.unwrap().unwrap();
}

/// Answers every message with the same error, after a while.
#[derive(Clone)]
struct Unwilling {
    error: PublishError,
    after: Duration,
}

#[async_trait]
impl Publisher for Unwilling {
    async fn publish(&self, batch: Batch, report: Report) {
        for delivery in &batch.deliveries {
            let place = delivery.place;
            if !batch.may_send(place) {
                report.outcome(place, Outcome::NotAttempted);
                continue;
            }
            sleep(self.after).await;
            report.outcome(place, Outcome::Failed(self.error.clone()));
        }
    }

    fn name(&self) -> &'static str {
        "unwilling"
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_ends_at_a_broker_that_throttles_again_and_again() {
    let store = store();
    enqueue(&store, [""; 20]).await;
    let broker = Unwilling {
        error: PublishError::throttled(SECOND, "too many requests"),
        after: Duration::ZERO,
    };
    let drained = timeout(MINUTE, Relay::new(store, broker).drain()).await;
    let error = drained.expect("the drain ends").unwrap_err();
    assert!(
        matches!(&error, RelayError::BrokerUnavailable { reason, .. } if reason.contains("too many requests")),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_drain_ends_though_what_it_put_off_is_due_again_before_it_is_through() {
    let store = store();
    store.slow_claims(SECOND / 10);
    enqueue(&store, [""; 20]).await;
    let broker = Unwilling {
        error: PublishError::throttled(SECOND, "over its quota").at("orders"),
        after: SECOND * 2,
    };
    let one_by_one = RelayConfig {
        batch_size: 1,
        max_in_flight: 1,
        ..RelayConfig::default()
    };
    let drained = timeout(MINUTE * 10, Relay::new(store, broker).config(one_by_one).drain()).await;
    let report = drained.expect("the drain ends").unwrap();
    assert_eq!(report.delivered, 0);
    assert!(!report.is_complete());
}

#[tokio::test(start_paused = true)]
async fn a_relay_that_may_not_claim_does_not_go_on_failing_at_it() {
    let store = store();
    enqueue(&store, ["1"]).await;
    let broker = Unwilling {
        error: PublishError::throttled(MINUTE * 10, "too many requests"),
        after: SECOND * 5,
    };
    let shutdown = CancellationToken::new();
    let relay = Relay::new(store.clone(), broker);
    let health = relay.health();
    let relay = tokio::spawn(relay.run_until(shutdown.clone()));
    sleep(SECOND).await;
    store.fail_claims(u32::MAX);
    enqueue(&store, ["2"]).await;
    sleep(SECOND * 3).await;
    let problem = health.problem().expect("it fails to claim");
    assert!(problem.contains("claiming"), "{problem}");
    sleep(MINUTE).await;
    assert_eq!(health.problem(), None, "it waits for the broker");
    shutdown.cancel();
    relay.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn rows_are_removed_though_they_take_too_long_to_count() {
    let (store, shutdown) = (store(), CancellationToken::new());
    let ids = enqueue(&store, ["1"]).await;
    store.slow_stats(MINUTE * 60);
    let brief = RelayConfig {
        retention: Retention::For(MINUTE),
        ..RelayConfig::default()
    };
    let relay = Relay::new(store.clone(), RecordingPublisher::new()).config(brief);
    let relay = tokio::spawn(relay.run_until(shutdown.clone()));
    sleep(MINUTE * 30).await;
    assert!(store.inner().show(ids[0]).await.unwrap().is_none(), "it was removed");
    shutdown.cancel();
    assert_eq!(relay.await.unwrap().unwrap().delivered, 1);
}

fn of_key(key: &str, rows: usize) -> Vec<Message> {
    (0..rows)
        .map(|n| Message::new("orders", n.to_string()).key(key))
        .collect()
}

/// Rows of a key that is in flight cannot be claimed, and to look for others takes time that the key could use.
#[tokio::test(start_paused = true)]
async fn a_backlog_of_one_key_is_claimed_batch_by_batch_and_hardly_ever_in_vain() {
    let (store, broker) = (store(), RecordingPublisher::new());
    let options = OutboxOptions::default();
    let enqueued = store.inner().enqueue_and_commit(&options, of_key("hot", 200)).await;
    enqueued.unwrap();
    let config = RelayConfig {
        batch_size: 10,
        ..RelayConfig::default()
    };
    let relay = Relay::new(store.clone(), broker.clone()).config(config);
    assert_eq!(relay.drain().await.unwrap().delivered, 200);
    assert!(store.claims() <= 25, "{} claims for 20 batches", store.claims());
}

/// Takes a minute for the 31st message, and tells what it has seen.
#[derive(Clone)]
struct SlowKey {
    seen: Arc<watch::Sender<Vec<String>>>,
}

#[async_trait]
impl Publisher for SlowKey {
    async fn publish(&self, batch: Batch, report: Report) {
        for delivery in &batch.deliveries {
            let key = delivery.message.ordering_key.clone().unwrap_or_default();
            self.seen.send_modify(|seen| seen.push(key.to_string()));
            if self.seen.borrow().len() == 31 {
                sleep(MINUTE).await;
            }
            report.outcome(delivery.place, Outcome::DELIVERED);
        }
    }

    fn name(&self) -> &'static str {
        "slow"
    }
}

/// Nobody waits for a key that is busy, though the last look beside it found nothing.
#[tokio::test(start_paused = true)]
async fn others_are_found_beside_a_slow_key_within_the_poll_interval() {
    let (store, shutdown) = (store(), CancellationToken::new());
    store.fall_silent();
    let publisher = SlowKey {
        seen: Arc::new(watch::Sender::new(Vec::new())),
    };
    let mut seen = publisher.seen.subscribe();
    let options = OutboxOptions::default();
    let enqueued = store.inner().enqueue_and_commit(&options, of_key("hot", 40)).await;
    enqueued.unwrap();
    let config = RelayConfig {
        batch_size: 10,
        ..RelayConfig::default()
    };
    let relay = Relay::new(store.clone(), publisher).config(config);
    let relay = tokio::spawn(relay.run_until(shutdown.clone()));
    // Looks beside the first batches found nothing.
    timeout(MINUTE, seen.wait_for(|seen| seen.len() == 31))
        .await
        .unwrap()
        .unwrap();
    let enqueued = store.inner().enqueue_and_commit(&options, of_key("cold", 1)).await;
    enqueued.unwrap();
    let cold = seen.wait_for(|seen| seen.iter().any(|key| key == "cold"));
    timeout(SECOND, cold).await.expect("it goes beside the other").unwrap();
    shutdown.cancel();
    relay.await.unwrap().unwrap();
}

/// A deep backlog of rows that cannot go is dear to look through; the database has other things to do.
#[tokio::test(start_paused = true)]
async fn looks_that_are_dear_and_find_nothing_take_a_fifth_of_the_time() {
    for fixed_delay in [false, true] {
        let (store, shutdown) = (store(), CancellationToken::new());
        store.slow_claims(SECOND);
        let config = RelayConfig {
            fixed_delay,
            ..RelayConfig::default()
        };
        let relay = Relay::new(store.clone(), RecordingPublisher::new()).config(config);
        let relay = tokio::spawn(relay.run_until(shutdown.clone()));
        sleep(SECOND * 50).await;
        assert!((9..=11).contains(&store.claims()), "{} looks in 50 s", store.claims());
        shutdown.cancel();
        relay.await.unwrap().unwrap();
    }
}
