//! The engine at work on a store, for the cases of `relay` and `running`.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use posthaste_core::{Backoff, Batch, MessageId, Outcome, Publisher, Report, RetryPolicy};
use posthaste_relay::{Relay, RelayConfig, RelayReport};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::steps::{MINUTE, SECOND};
use crate::backend::Backend;
use crate::{FaultyPublisher, RecordingPublisher};

/// A relay that gives up after three attempts, one minute apart. No drain lasts so long, so it tries each message once.
pub(super) fn config() -> RelayConfig {
    retrying_after(MINUTE)
}

/// For relays that run until what failed is delivered.
pub(super) fn retrying_after(delay: Duration) -> RelayConfig {
    let backoff = Backoff::Schedule { delays: vec![delay] };
    RelayConfig {
        retry: RetryPolicy {
            max_attempts: 3,
            backoff,
        },
        ..RelayConfig::default()
    }
}

/// After so long what a drain has tried is due again.
pub(super) const DUE_AGAIN: Duration = Duration::from_mins(2);

/// Short enough for a test to see it run out, and long enough for a machine that has much else to do to renew it in time.
pub(super) const SHORT_LEASE: Duration = Duration::from_secs(6);

/// After so long a lease that was not renewed is over.
pub(super) const SHORT_LEASE_AND_MORE: Duration = Duration::from_secs(7);

/// A relay with short leases, which looks often.
pub(super) fn short() -> RelayConfig {
    RelayConfig {
        lease: SHORT_LEASE,
        poll_interval: SECOND / 20,
        max_poll_interval: SECOND / 20,
        ..retrying_after(SECOND)
    }
}

pub(super) fn broker() -> FaultyPublisher<RecordingPublisher> {
    FaultyPublisher::new(RecordingPublisher::new())
}

/// Hands messages over one by one, each when the last one is answered, and remembers when.
#[derive(Clone)]
pub(super) struct OneByOne {
    broker: FaultyPublisher<RecordingPublisher>,
    tried: Arc<Mutex<Vec<(MessageId, Instant)>>>,
}

impl OneByOne {
    pub(super) fn new(broker: &FaultyPublisher<RecordingPublisher>) -> Self {
        Self {
            broker: broker.clone(),
            tried: Arc::default(),
        }
    }

    /// What was handed over so far, and when.
    pub(super) fn tried(&self) -> Vec<(MessageId, Instant)> {
        lock(&self.tried).clone()
    }
}

#[async_trait]
impl Publisher for OneByOne {
    async fn publish(&self, batch: Batch, report: Report) {
        let stopped = Arc::new(Mutex::new(HashSet::new()));
        for delivery in batch.deliveries.clone() {
            let (id, place) = (delivery.message.id, delivery.place);
            let lane = delivery
                .message
                .lane()
                .map(|(topic, key)| (topic.to_owned(), key.to_owned()));
            let is_stopped = lane.as_ref().is_some_and(|lane| lock(&stopped).contains(lane));
            if is_stopped || !batch.may_send(place) {
                lock(&stopped).extend(lane);
                report.outcome(place, Outcome::NotAttempted);
                continue;
            }
            lock(&self.tried).push((id, Instant::now()));
            let mut single = batch.clone();
            single.deliveries = vec![delivery];
            let (outer, stopped) = (report.clone(), Arc::clone(&stopped));
            let report = Report::new(move |place, outcome| {
                if !outcome.is_delivered() {
                    lock(&stopped).extend(lane.clone());
                }
                outer.outcome(place, outcome);
            });
            self.broker.publish(single, report).await;
        }
    }

    fn name(&self) -> &'static str {
        "one-by-one"
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) async fn drain<B: Backend>(b: &B, publisher: impl Publisher, config: RelayConfig) -> RelayReport {
    let relay = Relay::new(b.store().clone(), publisher).config(config);
    timeout(MINUTE * 5, relay.drain())
        .await
        .expect("the drain ends")
        .expect("the relay runs")
}

/// Starts a relay that runs until the token fires.
pub(super) fn start<B: Backend>(
    b: &B,
    publisher: impl Publisher,
    config: RelayConfig,
) -> (CancellationToken, JoinHandle<RelayReport>) {
    let shutdown = CancellationToken::new();
    let running = Relay::new(b.store().clone(), publisher)
        .config(config)
        .run_until(shutdown.clone());
    (shutdown, tokio::spawn(async { running.await.expect("the relay runs") }))
}

pub(super) async fn eventually(what: &str, condition: impl AsyncFn() -> bool) {
    let wait = async {
        while !condition().await {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(MINUTE * 2, wait)
        .await
        .unwrap_or_else(|_| panic!("waited in vain for {what}"));
}
