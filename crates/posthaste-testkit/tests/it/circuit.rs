//! The circuit breaker with the settings that it ships with, on a clock that does not have to be waited for.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use posthaste_core::breaker::CircuitState;
use posthaste_core::store::{Filter, ProducerStore};
use posthaste_core::{AdminStore, Batch, Message, OutboxOptions, Outcome, PublishError, Publisher, Report};
use posthaste_relay::{Relay, RelayConfig};
use posthaste_testkit::{MemoryStore, TestClock};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// Answers by the clock: unavailable, then refusing, then there.
#[derive(Clone)]
struct Broker {
    start: Instant,
    calls: Arc<Mutex<Vec<(Duration, Outcome)>>>,
}

impl Broker {
    fn answer(&self) -> Outcome {
        match self.start.elapsed().as_secs() {
            0..70 => Outcome::Failed(PublishError::transport("connection refused")),
            70..95 => Outcome::Failed(PublishError::transient("the topic is busy")),
            _ => Outcome::DELIVERED,
        }
    }

    /// How many calls there were from one second to another.
    fn calls(&self, seconds: std::ops::Range<u64>) -> usize {
        let calls = self.calls.lock().unwrap();
        calls.iter().filter(|(at, _)| seconds.contains(&at.as_secs())).count()
    }
}

#[async_trait]
impl Publisher for Broker {
    async fn publish(&self, batch: Batch, report: Report) {
        for delivery in &batch.deliveries {
            let place = delivery.place;
            if !batch.may_send(place) {
                report.outcome(place, Outcome::NotAttempted);
                continue;
            }
            let outcome = self.answer();
            self.calls.lock().unwrap().push((self.start.elapsed(), outcome.clone()));
            report.outcome(place, outcome);
        }
    }

    fn name(&self) -> &'static str {
        "clockwork"
    }
}

/// Proves C6.
#[tokio::test(start_paused = true)]
async fn the_circuit_opens_tries_and_closes_as_it_is_told_by_default() {
    let start = Instant::now();
    let store = MemoryStore::with_clock(TestClock::ticking());
    let messages = (0..100).map(|n| Message::new("orders", n.to_string())).collect();
    store
        .enqueue_and_commit(&OutboxOptions::default(), messages)
        .await
        .unwrap();
    let broker = Broker {
        start,
        calls: Arc::default(),
    };
    let shutdown = CancellationToken::new();
    let relay = Relay::new(store.clone(), broker.clone()).config(RelayConfig::default());
    let relay = tokio::spawn(relay.run_until(shutdown.clone()));
    let attempts = async || -> usize {
        let rows = store.list(&Filter::default(), None, 1_000).await.unwrap();
        rows.iter().map(|row| row.attempts as usize).sum()
    };

    let at = |seconds| sleep_until(start + Duration::from_secs(seconds));
    at(29).await;
    assert_eq!(
        (broker.calls(0..29), attempts().await),
        (5, 4),
        "at the fifth failure it opens, and from there on attempts do not count"
    );
    at(59).await;
    assert_eq!(
        (broker.calls(29..59), attempts().await),
        (1, 4),
        "one failed trial opens it again"
    );
    at(69).await;
    assert_eq!((broker.calls(59..69), attempts().await), (1, 4), "and again");
    at(90).await;
    assert_eq!(
        (broker.calls(69..90), attempts().await),
        (0, 4),
        "nothing is tried meanwhile"
    );
    // At 90 s the broker is back and refuses: that says nothing about the way to it, so trials go on, three at a time.
    at(95).await;
    assert!(broker.calls(90..95) > 3, "{}", broker.calls(90..95));
    at(120).await;
    assert_eq!(
        broker.calls(95..120),
        100,
        "three successes close it, and everything goes out"
    );
    shutdown.cancel();
    let report = relay.await.unwrap().unwrap();
    assert_eq!((report.delivered, report.died), (100, 0));
}

/// Knows one tenant's topic and no other, and says so at once, as a client does that has the list of topics.
#[derive(Clone, Default)]
struct OneTopic {
    delivered: Arc<Mutex<usize>>,
}

#[async_trait]
impl Publisher for OneTopic {
    async fn publish(&self, batch: Batch, report: Report) {
        for delivery in &batch.deliveries {
            let place = delivery.place;
            let tenant = delivery.message.tenant.clone().unwrap_or_default();
            let outcome = if !batch.may_send(place) {
                Outcome::NotAttempted
            } else if tenant == "there" {
                *self.delivered.lock().unwrap() += 1;
                Outcome::DELIVERED
            } else {
                Outcome::Failed(PublishError::transport("there is no such topic").at(tenant.as_str()))
            };
            report.outcome(place, outcome);
        }
    }

    fn name(&self) -> &'static str {
        "one-topic"
    }
}

#[tokio::test(start_paused = true)]
async fn topics_that_are_missing_stop_neither_the_broker_nor_other_tenants_of_their_outbox_topic() {
    let store = MemoryStore::with_clock(TestClock::ticking());
    let enqueue = async |tenant: &str, count: usize| {
        let message = |n: usize| {
            let mut message = Message::new("orders", n.to_string());
            message.tenant = Some(tenant.into());
            message
        };
        let messages = (0..count).map(message).collect();
        let options = OutboxOptions::default();
        store.enqueue_and_commit(&options, messages).await.unwrap();
    };
    enqueue("missing", 50).await;
    enqueue("missing-too", 50).await;
    let (broker, shutdown) = (OneTopic::default(), CancellationToken::new());
    let relay = Relay::new(store.clone(), broker.clone());
    let health = relay.health();
    let relay = tokio::spawn(relay.run_until(shutdown.clone()));
    let start = Instant::now();
    for minute in 1..=10 {
        sleep_until(start + Duration::from_mins(minute)).await;
        let circuit = health.circuit().map(|(state, _)| state);
        assert_eq!(circuit, Some(CircuitState::Closed), "after {minute} minutes");
        enqueue("there", 10).await;
    }
    sleep_until(start + Duration::from_mins(11)).await;
    assert_eq!(*broker.delivered.lock().unwrap(), 100);
    shutdown.cancel();
    assert_eq!(relay.await.unwrap().unwrap().died, 0);
}
