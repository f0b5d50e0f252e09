//! Nothing gets through to any of several publishers: the relay stops claiming, and finds out by one message that it is over.

use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use posthaste_core::breaker::CircuitState;
use posthaste_core::lifecycle::State;
use posthaste_core::publisher::{Delivery, PublishError};
use posthaste_core::store::{Filter, ProducerStore, Record, SchemaStore};
use posthaste_core::{AdminStore, BreakerConfig, Message, OutboxOptions, Publisher, RelayStore};
use posthaste_publishers::{Callback, Route, Routed};
use posthaste_relay::{Relay, RelayConfig};
use posthaste_sqlite::SqliteStore;
use posthaste_testkit::{MemoryStore, TestClock};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

#[derive(Clone, Copy, PartialEq)]
enum Mood {
    Well,
    Unavailable,
    /// Answers as soon as it is in another mood.
    Slow,
}

/// A publisher that remembers when it was called.
#[derive(Clone)]
struct Target {
    mood: Arc<Mutex<Mood>>,
    calls: Arc<Mutex<Vec<Instant>>>,
}

impl Target {
    fn new(mood: Mood) -> Self {
        Self {
            mood: Arc::new(Mutex::new(mood)),
            calls: Arc::default(),
        }
    }

    fn set(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }

    fn mood(&self) -> Mood {
        *self.mood.lock().unwrap()
    }

    /// How many calls there were within these seconds.
    fn calls(&self, start: Instant, seconds: Range<u64>) -> usize {
        let calls = self.calls.lock().unwrap();
        let within = |at: &&Instant| seconds.contains(&at.duration_since(start).as_secs());
        calls.iter().filter(within).count()
    }

    fn publisher(&self) -> Arc<dyn Publisher> {
        let this = self.clone();
        let call = move |_: Delivery| {
            let this = this.clone();
            async move {
                this.calls.lock().unwrap().push(Instant::now());
                while this.mood() == Mood::Slow {
                    sleep(Duration::from_millis(5)).await;
                }
                match this.mood() {
                    Mood::Well => Ok(()),
                    _ => Err(PublishError::transport("connection refused")),
                }
            }
        };
        // One after the other, so that a breaker sees each answer before the next call.
        Arc::new(Callback::new(call).concurrency(1))
    }
}

/// Messages of the topic `first` go to the first, all others to the second.
fn routed(first: &Target, second: &Target) -> Routed {
    Routed::new(
        vec![
            ("first".to_owned(), first.publisher()),
            ("second".to_owned(), second.publisher()),
        ],
        vec![Route::to("first").topic("first"), Route::to("second")],
    )
    .unwrap()
}

async fn enqueue(store: &impl ProducerStore, topic: &str, count: usize) {
    let messages = (0..count).map(|n| Message::new(topic, n.to_string())).collect();
    store
        .enqueue_and_commit(&OutboxOptions::default(), messages)
        .await
        .unwrap();
}

async fn rows(store: &impl AdminStore) -> Vec<Record> {
    store.list(&Filter::default(), None, 10_000).await.unwrap()
}

fn untouched(row: &Record) -> bool {
    row.state == State::Pending && row.attempts == 0 && row.last_error.is_none()
}

async fn until(what: &str, is_so: impl AsyncFn() -> bool) {
    let wait = async {
        while !is_so().await {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(30), wait)
        .await
        .unwrap_or_else(|_| panic!("waited in vain until {what}"));
}

/// With the settings that a relay has by default, and a backlog of the publisher that stays away before all others.
#[tokio::test(start_paused = true)]
async fn the_relay_stops_as_a_whole_and_goes_on_with_the_first_publisher_that_is_back() {
    let start = Instant::now();
    let at = |seconds| sleep_until(start + Duration::from_secs(seconds));
    let store = MemoryStore::with_clock(TestClock::ticking());
    let (first, second) = (Target::new(Mood::Unavailable), Target::new(Mood::Unavailable));
    enqueue(&store, "first", 10).await;
    enqueue(&store, "second", 10).await;
    let shutdown = CancellationToken::new();
    let relay = Relay::new(store.clone(), routed(&first, &second));
    let health = relay.health();
    let relay = tokio::spawn(relay.run_until(shutdown.clone()));
    let attempts = async || rows(&store).await.iter().map(|row| row.attempts).sum::<u32>();

    at(10).await;
    assert_eq!((first.calls(start, 0..10), second.calls(start, 0..10)), (5, 5));
    let (state, reason) = health.circuit().unwrap();
    assert_eq!(state, CircuitState::Open);
    let reason = reason.unwrap();
    assert!(
        reason.contains("first is unavailable: publisher first: connection refused"),
        "{reason}"
    );
    assert!(
        reason.contains("second is unavailable: publisher second: connection refused"),
        "{reason}"
    );
    assert!(health.is_healthy(), "the relay itself is well");
    assert_eq!(attempts().await, 8, "the fifth failure of each is no attempt any more");
    enqueue(&store, "first", 2_000).await;
    enqueue(&store, "second", 20).await;
    at(29).await;
    assert_eq!(
        rows(&store).await.iter().filter(|row| untouched(row)).count(),
        2_020,
        "nothing is claimed to be put back"
    );

    // One trial after the other: each finds one of the two unavailable, and that is all.
    at(59).await;
    assert_eq!((first.calls(start, 29..59), second.calls(start, 29..59)), (1, 1));
    assert_eq!(attempts().await, 8);
    second.set(Mood::Well);
    at(80).await;
    assert_eq!(health.circuit().unwrap(), (CircuitState::Closed, None));
    assert_eq!(
        second.calls(start, 59..80),
        30,
        "all of its messages, behind two thousand of the other"
    );
    assert!(first.calls(start, 59..80) <= 2, "{}", first.calls(start, 59..80));
    assert_eq!(attempts().await, 8 + 30, "none is used up by the one that stays away");
    shutdown.cancel();
    assert_eq!(relay.await.unwrap().unwrap().delivered, 30);
}

/// The same on a database: rows are left alone, and one is under a lease while it is tried.
#[tokio::test(flavor = "multi_thread")]
async fn while_no_publisher_is_available_rows_stay_as_they_are_until_one_message_is_tried() {
    const OPEN_FOR: Duration = Duration::from_secs(4);
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::connect(directory.path().join("outbox.db")).await.unwrap();
    store.migrate().await.unwrap();
    let (first, second) = (Target::new(Mood::Unavailable), Target::new(Mood::Unavailable));
    let config = RelayConfig {
        poll_interval: Duration::from_millis(5),
        max_poll_interval: Duration::from_millis(10),
        breaker: BreakerConfig {
            open_for: OPEN_FOR,
            ..BreakerConfig::default()
        },
        ..RelayConfig::default()
    };
    let stop = CancellationToken::new();
    let relay = Relay::new(store.clone(), routed(&first, &second)).config(config);
    let health = relay.health();
    let relay = tokio::spawn(relay.run_until(stop.clone()));
    let circuit = || health.circuit().map(|(state, _)| state);
    let started = Instant::now();
    enqueue(&store, "first", 5).await;
    enqueue(&store, "second", 5).await;
    until("nothing gets through anywhere", async || {
        circuit() == Some(CircuitState::Open)
    })
    .await;
    first.set(Mood::Slow);
    second.set(Mood::Slow);
    enqueue(&store, "first", 20).await;
    enqueue(&store, "second", 20).await;
    // A claim that was under way when the circuit opened has none of the new rows. A hundred polls.
    sleep(Duration::from_secs(1)).await;
    let left_alone = rows(&store).await.iter().filter(|row| untouched(row)).count();
    // Whenever it opened: its time is not over.
    if started.elapsed() < OPEN_FOR {
        assert_eq!(left_alone, 40, "nothing is claimed to be put back");
    }

    until("a message is tried", async || circuit() == Some(CircuitState::HalfOpen)).await;
    sleep(Duration::from_millis(300)).await;
    let stats = store.stats("default").await.unwrap();
    assert_eq!(stats.processing, 1, "one message is tried");
    first.set(Mood::Well);
    second.set(Mood::Well);
    until("everything is delivered", async || {
        rows(&store).await.iter().all(|row| row.state == State::Delivered)
    })
    .await;
    assert_eq!(circuit(), Some(CircuitState::Closed));
    assert!(
        rows(&store).await.iter().all(|row| row.attempts <= 2),
        "attempts are kept"
    );
    stop.cancel();
    relay.await.unwrap().unwrap();
}
