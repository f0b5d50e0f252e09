//! A relay between an outbox and a cluster of which one broker is unavailable.

use std::time::Duration;

use posthaste_core::retry::{Backoff, RetryPolicy};
use posthaste_core::store::SchemaStore;
use posthaste_core::{Message, OutboxOptions, RelayStore};
use posthaste_publishers::kafka::KafkaPublisher;
use posthaste_relay::{Relay, RelayConfig};
use posthaste_sqlite::SqliteStore;
use rdkafka::mocking::MockCluster;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::support::kafka;
use crate::support::kafka::Topic;

const PARTITIONS: i32 = 3;
const KEYS: usize = 30;
const EACH: usize = 3;

async fn enqueue(store: &SqliteStore, topic: &Topic) {
    let outbox = store.outbox(OutboxOptions::default());
    let mut tx = store.pool().begin().await.unwrap();
    for n in 0..EACH {
        for key in 0..KEYS {
            let message = Message::new(topic.name.as_str(), n.to_string()).key(format!("key-{key}"));
            outbox.enqueue(&mut tx, message).await.unwrap();
        }
    }
    tx.commit().await.unwrap();
}

async fn until(store: &SqliteStore, what: &str, holds: impl Fn(u64, u64) -> bool) {
    let deadline = Instant::now() + kafka::TIMEOUT;
    loop {
        let stats = store.stats("default").await.unwrap();
        let (open, dead) = (stats.pending + stats.processing, stats.dead);
        if holds(open, dead) {
            return;
        }
        assert!(Instant::now() < deadline, "never: {what} ({open} open, {dead} dead)");
        sleep(Duration::from_millis(50)).await;
    }
}

/// A partition that nobody answers for costs its messages no attempts, and holds up no others.
///
/// Proves pitfall 26.
#[tokio::test(flavor = "multi_thread")]
async fn no_message_dies_of_a_partition_that_is_unavailable_and_the_others_go_on() {
    let cluster = MockCluster::new(3).unwrap();
    let topic = Topic::absent(&cluster.bootstrap_servers());
    cluster.create_topic(&topic.name, PARTITIONS, 3).unwrap();
    for partition in 0..PARTITIONS {
        cluster
            .partition_leader(&topic.name, partition, Some(partition + 1))
            .unwrap();
    }
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::connect(&directory.path().join("outbox.db")).await.unwrap();
    store.migrate().await.unwrap();
    let mut options = topic.options();
    options.answer_within = Some(Duration::from_secs(1));
    let config = RelayConfig {
        retry: RetryPolicy {
            max_attempts: 2,
            backoff: Backoff::Schedule {
                delays: vec![Duration::from_millis(50)],
            },
        },
        ..RelayConfig::default()
    };
    let relay = Relay::new(store.clone(), KafkaPublisher::new(options).unwrap()).config(config);
    let stop = CancellationToken::new();
    let running = tokio::spawn(relay.run_until(stop.clone()));
    // The cluster is known, and then a third of it is unavailable.
    enqueue(&store, &topic).await;
    until(&store, "all are delivered", |open, _| open == 0).await;
    let of_the_dead = |records: &[kafka::Stored]| records.iter().filter(|record| record.partition == 2).count() as u64;
    let stuck = of_the_dead(&topic.records());
    assert!(stuck > 0 && stuck < (KEYS * EACH) as u64);
    cluster.broker_down(3).unwrap();
    let began = Instant::now();
    for round in 1..=6 {
        enqueue(&store, &topic).await;
        until(&store, "what can be delivered is", |open, dead| {
            open + dead == round * stuck
        })
        .await;
        // Long enough for the stuck ones to be tried in vain more often than they have attempts.
        sleep(Duration::from_secs(2)).await;
    }
    assert!(began.elapsed() < Duration::from_secs(45), "{:?}", began.elapsed());
    until(&store, "none is dead", |_, dead| dead == 0).await;
    cluster.broker_up(3).unwrap();
    until(&store, "all are delivered", |open, dead| open == 0 && dead == 0).await;
    stop.cancel();
    running.await.unwrap().unwrap();
}
