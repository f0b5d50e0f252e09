//! Brokers that do not say where a group begins, with all partitions or with some.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::Utc;
use posthaste_consumer::{Consumer, OffsetReset, Once, Received};
use posthaste_kafka::event::{self, Format};
use posthaste_postgres::PostgresInbox;
use posthaste_servers::KafkaCluster;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::FutureRecord;
use sqlx::PgConnection;

use crate::support;
use crate::support::{Running, SOLD, Sale, World, logs, until};

/// Failpoints are the whole process's.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins with the latest, and writes down which partition an event came from.
fn latest(world: &World) -> Consumer<PostgresInbox> {
    let config = world.config().auto_offset_reset(OffsetReset::Latest);
    let effects = world.clone();
    Consumer::new(config, world.inbox()).on(
        SOLD,
        Once::per_event(),
        async move |tx: &mut PgConnection, event: Received<Sale>| {
            Ok(effects
                .effect(tx, &event.partition.to_string(), event.payload.n)
                .await?)
        },
    )
}

fn from(partition: i32, n: i64) -> (String, i64) {
    (partition.to_string(), n)
}

/// Where a group begins must be known before it reads. As long as the brokers do not say, the consumer asks again, and
/// handles neither what was there before nor less than what came since.
#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::await_holding_lock, reason = "no test waits for another")]
async fn a_first_position_that_cannot_be_settled_is_tried_again() {
    let _alone = alone();
    let Some(world) = World::new(1).await else { return };
    world.send(&world.sale("a", 1), Some(0)).await;
    let points = fail::FailScenario::setup();
    fail::cfg("first_position", "2*return->off").unwrap();
    let running = Running::start(latest(&world));
    world.until_committed(0, 1).await;
    world.send(&world.sale("a", 2), Some(0)).await;
    world.until_committed(0, 2).await;
    running.stop().await;
    points.teardown();
    assert_eq!(world.effects().await, [from(0, 2)]);
    let told = logs::with(&["WARN", "first position is not settled", &world.group]);
    assert_eq!(told.len(), 1, "{told:?}");
}

/// A partition without a leader keeps no other waiting, also after a rebalance, and is read once it has one.
#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::await_holding_lock, reason = "no test waits for another")]
async fn a_partition_without_a_leader_does_not_keep_the_others_waiting() {
    if support::left_out("postgres") {
        return;
    }
    let _alone = alone();
    let brokers = MockCluster::new(2).unwrap();
    let world = World::on(&brokers.bootstrap_servers()).await;
    brokers.create_topic(&world.topic, 2, 1).unwrap();
    brokers.create_topic(&world.dead_letter_topic(), 1, 1).unwrap();
    for partition in [0, 1] {
        world.send(&world.sale("a", 1), Some(partition)).await;
    }
    brokers.partition_leader(&world.topic, 1, None).unwrap();

    let running = Running::start(latest(&world));
    world.until_committed(0, 1).await;
    world.send(&world.sale("a", 2), Some(0)).await;
    assert_eq!(world.until_effects(1).await, [from(0, 2)]);
    // A second member makes the group share its partitions out anew.
    let second = Running::start(latest(&world));
    until("the first gives its partitions up", async || {
        !logs::with(&["giving up partitions", &world.group]).is_empty()
    })
    .await;
    assert_eq!(second.stop().await.handled, 0);

    brokers.partition_leader(&world.topic, 1, Some(1)).unwrap();
    world.until_committed(1, 1).await;
    world.send(&world.sale("a", 3), Some(1)).await;
    world.send(&world.sale("a", 4), Some(0)).await;
    let mut effects = world.until_effects(3).await;
    effects.sort();
    assert_eq!(effects, [from(0, 2), from(0, 4), from(1, 3)]);
    running.stop().await;
}

/// A partition that is added to the topic while the group is stopped holds nothing that the group has missed before it
/// began.
#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::await_holding_lock, reason = "no test waits for another")]
async fn a_partition_that_was_added_while_the_group_was_stopped_is_read_from_its_beginning() {
    let _alone = alone();
    let Some(world) = World::new(1).await else { return };
    world.send(&world.sale("a", 1), Some(0)).await;
    let running = Running::start(latest(&world));
    world.until_committed(0, 1).await;
    // The offset of a batch stands in place of the first position.
    world.send(&world.sale("a", 2), Some(0)).await;
    world.until_committed(0, 2).await;
    running.stop().await;

    world.grow(2).await;
    world.send(&world.sale("a", 3), Some(1)).await;
    let running = Running::start(latest(&world));
    assert_eq!(world.until_effects(2).await, [from(0, 2), from(1, 3)]);
    world.until_committed(1, 1).await;
    running.stop().await;

    // So is the next one, which only the offsets of the others tell.
    world.grow(3).await;
    world.send(&world.sale("a", 4), Some(2)).await;
    let running = Running::start(latest(&world));
    assert_eq!(world.until_effects(3).await, [from(0, 2), from(1, 3), from(2, 4)]);
    running.stop().await;
}

/// That a group has offsets for other partitions does not mean that this one was added: its members begin one by one, and a
/// partition may have no leader when the group begins.
#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::await_holding_lock, reason = "no test waits for another")]
async fn a_partition_that_the_group_has_not_got_round_to_begins_at_its_end_after_a_restart() {
    if support::left_out("postgres") {
        return;
    }
    let _alone = alone();
    let brokers = MockCluster::new(2).unwrap();
    let world = World::on(&brokers.bootstrap_servers()).await;
    brokers.create_topic(&world.topic, 2, 1).unwrap();
    brokers.create_topic(&world.dead_letter_topic(), 1, 1).unwrap();
    for partition in [0, 1] {
        world.send(&world.sale("a", 1), Some(partition)).await;
    }
    brokers.partition_leader(&world.topic, 1, None).unwrap();
    let running = Running::start(latest(&world));
    world.until_committed(0, 1).await;
    running.stop().await;
    assert_eq!(world.committed(1).await, None);

    brokers.partition_leader(&world.topic, 1, Some(1)).unwrap();
    let running = Running::start(latest(&world));
    world.until_committed(1, 1).await;
    world.send(&world.sale("a", 2), Some(1)).await;
    assert_eq!(world.until_effects(1).await, [from(1, 2)]);
    running.stop().await;
}

/// The broker, of those in the cluster's order, that leads a partition; nothing if none does.
fn leader(cluster: &KafkaCluster, topic: &str, partition: usize) -> Option<usize> {
    let bootstrap = cluster.bootstrap();
    let consumer: BaseConsumer = rdkafka::ClientConfig::new()
        .set("bootstrap.servers", &bootstrap)
        .create()
        .unwrap();
    let metadata = consumer.fetch_metadata(Some(topic), Duration::from_secs(20)).unwrap();
    let leader = metadata.topics()[0].partitions()[partition].leader();
    let broker = metadata.brokers().iter().find(|broker| broker.id() == leader)?;
    let address = format!("{}:{}", broker.host(), broker.port());
    bootstrap.split(',').position(|known| known == address)
}

async fn send_with_time(world: &World, n: i64, partition: i32, age: chrono::TimeDelta) {
    let message = world.sale("a", n);
    let encoded = event::encode(&message, Utc::now(), Format::Binary).unwrap();
    let record = FutureRecord {
        topic: &message.topic,
        partition: Some(partition),
        payload: Some(encoded.payload.as_ref()),
        key: encoded.key,
        timestamp: Some((Utc::now() - age).timestamp_millis()),
        headers: Some(encoded.headers),
    };
    world.send_record(record).await;
}

/// "Latest" is the moment of the first assignment also for a partition that has no leader then: what comes to it before
/// the group finds out where it ends is not passed over.
#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::await_holding_lock, reason = "no test waits for another")]
async fn what_comes_to_a_partition_before_its_end_is_known_is_not_passed_over() {
    if support::left_out("kafka") || support::left_out("postgres") {
        return;
    }
    let _alone = alone();
    let home = tempfile::tempdir().unwrap();
    let place = home.path().to_owned();
    let cluster = tokio::task::spawn_blocking(move || KafkaCluster::start(&place));
    let cluster = Arc::new(cluster.await.unwrap().unwrap());
    let world = World::on(&cluster.bootstrap()).await;
    world.create_topic(&world.topic, 3, &[]).await;
    world.create_topic(&world.dead_letter_topic(), 1, &[]).await;
    for partition in 0..3 {
        send_with_time(&world, 1, partition, chrono::TimeDelta::hours(2)).await;
    }
    let on_cluster = async |what: fn(&KafkaCluster, &str) -> Option<usize>| {
        let (cluster, topic) = (Arc::clone(&cluster), world.topic.clone());
        tokio::task::spawn_blocking(move || what(&cluster, &topic))
            .await
            .unwrap()
    };
    let leader_of_2 = async || on_cluster(|cluster, topic| leader(cluster, topic, 2)).await;
    let broker = leader_of_2().await.unwrap();
    let killing = Arc::clone(&cluster);
    tokio::task::spawn_blocking(move || killing.kill(broker).unwrap())
        .await
        .unwrap();
    until("the partition has no leader", async || leader_of_2().await.is_none()).await;

    let points = fail::FailScenario::setup();
    let running = Running::start(latest(&world));
    world.until_committed(0, 1).await;
    world.until_committed(1, 1).await;
    world.send(&world.sale("a", 2), Some(0)).await;
    assert_eq!(world.until_effects(1).await, [from(0, 2)]);
    assert_eq!(world.committed(2).await, None);

    fail::cfg("first_position", "return").unwrap();
    let starting = Arc::clone(&cluster);
    tokio::task::spawn_blocking(move || starting.start_again(broker).unwrap())
        .await
        .unwrap();
    world.send(&world.sale("a", 3), Some(2)).await;
    fail::cfg("first_position", "off").unwrap();
    world.send(&world.sale("a", 4), Some(2)).await;
    let effects = world.until_effects(3).await;
    running.stop().await;
    points.teardown();
    assert_eq!(effects, [from(0, 2), from(2, 3), from(2, 4)]);
    let told = logs::with(&["WARN", "first position is not settled", &world.group]);
    assert_eq!(told.len(), 1, "{told:?}");
}
