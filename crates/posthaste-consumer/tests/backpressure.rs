//! Memory is bounded, whatever lies in the topic. Alone in its process, because metrics are the process's.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use posthaste_consumer::{Consumer, Once, Received, describe_metrics};
use sqlx::PgConnection;
use support::{Running, SOLD, Sale, World, until};
use tokio::sync::Semaphore;

/// What was measured since the last look, by name.
fn look(metrics: &Snapshotter) -> BTreeMap<String, f64> {
    let all = metrics.snapshot().into_vec().into_iter();
    #[expect(clippy::cast_precision_loss, reason = "small counts")]
    let value = |value| match value {
        DebugValue::Gauge(value) => value.into_inner(),
        DebugValue::Counter(count) => count as f64,
        DebugValue::Histogram(values) => values.len() as f64,
    };
    all.map(|(key, _, _, found)| (key.key().name().to_owned(), value(found)))
        .collect()
}

/// Two thousand events wait behind handlers that do not move: of each partition one batch and one queue are read, and no
/// more.
#[tokio::test(flavor = "multi_thread")]
async fn no_more_is_read_than_the_queues_hold() {
    let recorder = DebuggingRecorder::new();
    let metrics = recorder.snapshotter();
    recorder.install().unwrap();
    describe_metrics();
    let Some(world) = World::new(2).await else { return };
    let sales: Vec<_> = (0..2_000)
        .map(|n| (world.sale("a", n), i32::from(n % 2 == 0)))
        .collect();
    world.send_all(&sales).await;
    let connection = world.config().connection.property("statistics.interval.ms", "100");
    let config = world
        .config()
        .connection(connection)
        .max_poll_records(10)
        .queue_size(25);
    let gate = Arc::new(Semaphore::new(0));
    let (effects, entry) = (world.clone(), Arc::clone(&gate));
    let running = Running::start(Consumer::new(config, world.inbox()).on(
        SOLD,
        Once::per_event(),
        async move |tx: &mut PgConnection, event: Received<Sale>| {
            entry.acquire().await?.forget();
            Ok(effects.effect(tx, "a", event.payload.n).await?)
        },
    ));
    let waiting = || {
        let seen = look(&metrics);
        let of = |name: &str| seen.get(name).copied().unwrap_or_default();
        assert!(of("consumer_queued_count") <= 50.0, "{seen:?}");
        (of("consumer_paused_partitions"), of("consumer_queued_count"))
    };
    until("both queues are full", async || waiting() == (2.0, 50.0)).await;
    until("a record has been in hand for some time", async || {
        look(&metrics)
            .get("consumer_partition_seconds")
            .is_some_and(|since| *since > 1.0)
    })
    .await;
    gate.add_permits(100);
    world.until_effects(100).await;
    until("there is a lag", async || {
        look(&metrics).get("consumer_lag").is_some_and(|lag| *lag > 800.0)
    })
    .await;
    gate.add_permits(1_900);
    world.until_effects(2_000).await;
    for partition in 0..2 {
        world.until_committed(partition, 1_000).await;
    }
    until("nothing waits", async || waiting() == (0.0, 0.0)).await;
    until("there is none", async || {
        look(&metrics).get("consumer_lag") == Some(&0.0)
    })
    .await;
    until("nothing is in hand", async || {
        look(&metrics).get("consumer_partition_seconds") == Some(&0.0)
    })
    .await;
    assert_eq!(running.stop().await.handled, 2_000);
}
