//! What a relay counts and measures when things go wrong, on a clock that does not have to be waited for.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use posthaste_core::store::ProducerStore;
use posthaste_core::{Batch, Message, OutboxOptions, Outcome, PublishError, Publisher, Report};
use posthaste_relay::Relay;
use posthaste_testkit::{FaultyPublisher, FaultyStore, MemoryStore, RecordingPublisher, TestClock};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

const SECOND: Duration = Duration::from_secs(1);

fn store() -> FaultyStore<MemoryStore> {
    FaultyStore::new(MemoryStore::with_clock(TestClock::ticking()))
}

async fn enqueue<const N: usize>(store: &FaultyStore<MemoryStore>, payloads: [&str; N]) {
    let messages = payloads.map(|payload| Message::new("orders", payload.to_owned()));
    let options = OutboxOptions::default();
    let enqueued = store.inner().enqueue_and_commit(&options, messages.to_vec()).await;
    enqueued.unwrap();
}

/// What was counted since the last look, as `name` or `name reason`; of histograms how many values.
fn look(metrics: &Snapshotter) -> BTreeMap<String, f64> {
    let mut seen = BTreeMap::new();
    for (key, _, _, value) in metrics.snapshot().into_vec() {
        #[expect(clippy::cast_precision_loss, reason = "small counts")]
        let value = match value {
            DebugValue::Counter(count) => count as f64,
            DebugValue::Gauge(value) => value.into_inner(),
            DebugValue::Histogram(values) => values.len() as f64,
        };
        let reason = key.key().labels().find(|label| label.key() == "reason");
        let name = [Some(key.key().name()), reason.map(::metrics::Label::value)];
        seen.insert(name.into_iter().flatten().collect::<Vec<_>>().join(" "), value);
    }
    seen
}

#[track_caller]
fn assert_seen(seen: &BTreeMap<String, f64>, expected: &[(&str, f64)]) {
    for (name, value) in expected {
        let found = seen.get(*name).copied().unwrap_or_default();
        assert!((found - value).abs() < f64::EPSILON, "{name} is {found} in {seen:#?}");
    }
}

/// An outcome that the database does not take yet is no reason for the broker to look slow, nor for a delivery to be
/// missing.
///
/// Proves E7.
#[tokio::test(start_paused = true)]
async fn latency_is_taken_when_the_broker_acknowledges_and_not_when_that_is_written() {
    let recorder = DebuggingRecorder::new();
    let _recording = ::metrics::set_default_local_recorder(&recorder);
    let (store, broker, shutdown) = (store(), RecordingPublisher::new(), CancellationToken::new());
    store.refuse_all();
    enqueue(&store, ["1", "2"]).await;
    let relay = Relay::new(store.clone(), broker.clone()).run_until(shutdown.clone());
    let relay = tokio::spawn(relay);
    timeout(SECOND, broker.wait_for(2)).await.unwrap();
    let metrics = recorder.snapshotter();
    let seen = look(&metrics);
    assert_seen(
        &seen,
        &[("outbox_process_latency", 2.0), ("outbox_processed_count", 0.0)],
    );
    store.allow_all();
    sleep(SECOND * 90).await;
    let seen = look(&metrics);
    assert_seen(
        &seen,
        &[("outbox_process_latency", 0.0), ("outbox_processed_count", 2.0)],
    );
    shutdown.cancel();
    relay.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_message_whose_lease_is_lost_after_its_delivery_goes_out_twice_and_is_counted_as_that() {
    let recorder = DebuggingRecorder::new();
    let _recording = ::metrics::set_default_local_recorder(&recorder);
    let (store, broker, shutdown) = (store(), RecordingPublisher::new(), CancellationToken::new());
    store.lose_all();
    enqueue(&store, ["1"]).await;
    let relay = tokio::spawn(Relay::new(store, broker.clone()).run_until(shutdown.clone()));
    timeout(SECOND, broker.wait_for(1)).await.unwrap();
    sleep(SECOND).await;
    let seen = look(&recorder.snapshotter());
    let lost = seen["outbox_lease_lost_count"];
    assert!(lost > 1.0, "it goes out again and again: {seen:#?}");
    let expected = [
        ("outbox_repeated_count lease_lost", lost),
        ("outbox_processed_count", 0.0),
    ];
    assert_seen(&seen, &expected);
    shutdown.cancel();
    relay.await.unwrap().unwrap();
}

/// Takes messages and never says what became of them.
struct Silent;

#[async_trait]
impl Publisher for Silent {
    async fn publish(&self, _batch: Batch, _report: Report) {
        std::future::pending::<()>().await;
    }

    fn name(&self) -> &'static str {
        "silent"
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_in_flight_is_shown_and_what_is_abandoned_may_go_out_twice() {
    let recorder = DebuggingRecorder::new();
    let _recording = ::metrics::set_default_local_recorder(&recorder);
    let (store, shutdown) = (store(), CancellationToken::new());
    enqueue(&store, ["four", "four", "four"]).await;
    let relay = tokio::spawn(Relay::new(store, Silent).run_until(shutdown.clone()));
    sleep(SECOND * 3).await;
    let metrics = recorder.snapshotter();
    let seen = look(&metrics);
    let expected = [("outbox_in_flight_messages", 3.0), ("outbox_in_flight_bytes", 12.0)];
    assert_seen(&seen, &expected);
    shutdown.cancel();
    relay.await.unwrap().unwrap();
    sleep(SECOND).await;
    let expected = [
        ("outbox_in_flight_messages", 0.0),
        ("outbox_repeated_count abandoned", 3.0),
    ];
    assert_seen(&look(&metrics), &expected);
}

#[tokio::test(start_paused = true)]
async fn a_database_that_does_not_answer_claims_is_seen_by_the_time_since_the_last() {
    let recorder = DebuggingRecorder::new();
    let _recording = ::metrics::set_default_local_recorder(&recorder);
    let (store, shutdown) = (store(), CancellationToken::new());
    let relay = tokio::spawn(Relay::new(store.clone(), RecordingPublisher::new()).run_until(shutdown.clone()));
    sleep(SECOND * 30).await;
    let metrics = recorder.snapshotter();
    let since = || look(&metrics)["outbox_seconds_since_claim"];
    assert!(since() < 2.0, "it claims at least once a second");
    store.hang();
    sleep(SECOND * 60).await;
    assert!(since() > 57.0);
    store.release();
    // A call that was not answered in time is given more of it the next time.
    sleep(SECOND * 120).await;
    assert!(since() < 2.0);
    shutdown.cancel();
    relay.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_is_given_back_behind_a_failure_of_its_key_is_counted_as_that() {
    let recorder = DebuggingRecorder::new();
    let _recording = ::metrics::set_default_local_recorder(&recorder);
    let (store, shutdown) = (store(), CancellationToken::new());
    let broker = FaultyPublisher::new(RecordingPublisher::new());
    let options = OutboxOptions::default();
    let messages = ["1", "2", "3"].map(|payload| Message::new("orders", payload.to_owned()).key("42"));
    let enqueued = store.inner().enqueue_and_commit(&options, messages.to_vec()).await;
    enqueued.unwrap();
    broker.fail_next(1);
    let relay = tokio::spawn(Relay::new(store.clone(), broker.clone()).run_until(shutdown.clone()));
    timeout(SECOND * 10, broker.inner().wait_for(3)).await.unwrap();
    let metrics = recorder.snapshotter();
    let expected = [
        ("outbox_released_count order", 2.0),
        ("outbox_released_count circuit", 0.0),
    ];
    assert_seen(&look(&metrics), &expected);
    shutdown.cancel();
    relay.await.unwrap().unwrap();
}

/// Cannot reach its broker, and finds out one message at a time.
struct Disconnected;

#[async_trait]
impl Publisher for Disconnected {
    async fn publish(&self, batch: Batch, report: Report) {
        for delivery in &batch.deliveries {
            let place = delivery.place;
            let outcome = if batch.may_send(place) {
                Outcome::Failed(PublishError::transport("connection refused"))
            } else {
                Outcome::NotAttempted
            };
            report.outcome(place, outcome);
        }
    }

    fn name(&self) -> &'static str {
        "disconnected"
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_given_back_because_the_circuit_opened_is_counted_as_that() {
    let recorder = DebuggingRecorder::new();
    let _recording = ::metrics::set_default_local_recorder(&recorder);
    let (store, shutdown) = (store(), CancellationToken::new());
    enqueue(&store, ["1", "2", "3", "4", "5", "6", "7", "8"]).await;
    let relay = tokio::spawn(Relay::new(store, Disconnected).run_until(shutdown.clone()));
    sleep(SECOND * 5).await;
    let expected = [
        ("outbox_failed_count", 5.0),
        ("outbox_released_count circuit", 3.0),
        ("outbox_released_count order", 0.0),
        ("outbox_circuit_state", 2.0),
    ];
    assert_seen(&look(&recorder.snapshotter()), &expected);
    shutdown.cancel();
    relay.await.unwrap().unwrap();
}
