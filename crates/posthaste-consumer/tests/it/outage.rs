//! Real brokers die under consumers: one of them, and all of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use posthaste_consumer::{Consumer, HandlerError, Once, Received};
use posthaste_postgres::PostgresInbox;
use posthaste_servers::KafkaCluster;
use sqlx::PgConnection;

use crate::support;
use crate::support::{Running, SOLD, Sale, World, logs, until};

const PARTITIONS: i32 = 3;
const EVENTS: i64 = 3_000;

fn counting(world: &World) -> Consumer<PostgresInbox> {
    let effects = world.clone();
    world.consumer().on(
        SOLD,
        Once::per_event(),
        async move |tx: &mut PgConnection, event: Received<Sale>| -> Result<(), HandlerError> {
            effects
                .effect(tx, &event.partition.to_string(), event.payload.n)
                .await?;
            tokio::time::sleep(Duration::from_millis(4)).await;
            Ok(())
        },
    )
}

/// Does something to the brokers that takes a while.
async fn do_to(cluster: &Arc<KafkaCluster>, what: impl FnOnce(&KafkaCluster) + Send + 'static) {
    let cluster = Arc::clone(cluster);
    tokio::task::spawn_blocking(move || what(&cluster)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_effect_happens_once_and_in_order_while_brokers_die() {
    if support::left_out("kafka") || support::left_out("postgres") {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let place = home.path().to_owned();
    let cluster = tokio::task::spawn_blocking(move || KafkaCluster::start(&place))
        .await
        .unwrap()
        .unwrap();
    let cluster = Arc::new(cluster);
    let world = World {
        replicas: 3,
        ..World::on(&cluster.bootstrap()).await
    };
    world.create_topic(&world.topic, PARTITIONS, &[]).await;
    world.create_topic(&world.dead_letter_topic(), 1, &[]).await;
    let sales: Vec<_> = (0..EVENTS)
        .map(|n| (world.sale("a", n), i32::try_from(n % i64::from(PARTITIONS)).unwrap()))
        .collect();
    world.send_all(&sales).await;

    let consumers = [Running::start(counting(&world)), Running::start(counting(&world))];
    world.until_effects(300).await;
    do_to(&cluster, |cluster| cluster.kill(0).unwrap()).await;
    world.until_effects(600).await;
    do_to(&cluster, |cluster| cluster.start_again(0).unwrap()).await;
    do_to(&cluster, |cluster| cluster.kill_all().unwrap()).await;
    until("they say that the brokers are unavailable", async || {
        !logs::with(&["WARN", "reading from Kafka failed", &world.group]).is_empty()
    })
    .await;
    do_to(&cluster, |cluster| cluster.start_all_again().unwrap()).await;
    let effects = world.until_effects(usize::try_from(EVENTS).unwrap()).await;
    for partition in 0..PARTITIONS {
        world.until_committed(partition, EVENTS / i64::from(PARTITIONS)).await;
    }
    let mut dead_letters = 0;
    for consumer in consumers {
        dead_letters += consumer.stop().await.dead_letters;
    }
    assert_eq!(dead_letters, 0);
    let mut found: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for (partition, n) in effects {
        found.entry(partition).or_default().push(n);
    }
    let expected: BTreeMap<String, Vec<i64>> = (0..i64::from(PARTITIONS))
        .map(|partition| {
            let numbers = (0..EVENTS).filter(|n| n % i64::from(PARTITIONS) == partition);
            (partition.to_string(), numbers.collect())
        })
        .collect();
    assert_eq!(found, expected);
}
