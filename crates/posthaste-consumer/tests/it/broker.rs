//! Brokers that are unavailable or say no, by a cluster that does so on demand.

use std::sync::Arc;
use std::time::Duration;

use posthaste_consumer::{Consumer, Once, Received};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use sqlx::PgConnection;
use tokio::sync::Semaphore;

use crate::support;
use crate::support::{Running, SOLD, Sale, World, logs, until};

type Brokers = MockCluster<'static, DefaultProducerContext>;

const BROKERS: i32 = 2;

async fn world() -> Option<(Brokers, World)> {
    if support::left_out("postgres") {
        return None;
    }
    let brokers = MockCluster::new(BROKERS).unwrap();
    let world = World::on(&brokers.bootstrap_servers()).await;
    brokers.create_topic(&world.topic, 1, 1).unwrap();
    brokers.create_topic(&world.dead_letter_topic(), 1, 1).unwrap();
    Some((brokers, world))
}

fn down(brokers: &Brokers) {
    (1..=BROKERS).for_each(|id| brokers.broker_down(id).unwrap());
}

fn up(brokers: &Brokers) {
    (1..=BROKERS).for_each(|id| brokers.broker_up(id).unwrap());
}

/// Unavailable at the start, and again later: one line each time, and the work goes on where it was.
#[tokio::test(flavor = "multi_thread")]
async fn brokers_that_are_unavailable_are_waited_for_with_one_line() {
    let Some((brokers, world)) = world().await else { return };
    world.send(&world.sale("a", 1), Some(0)).await;
    down(&brokers);
    let running = Running::start(world.counting());
    let warned = || logs::with(&["WARN", "reading from Kafka failed", &world.group]);
    until("it says that they are unavailable", async || !warned().is_empty()).await;
    up(&brokers);
    world.until_effects(1).await;
    world.until_committed(0, 1).await;
    down(&brokers);
    until("it says so again", async || warned().len() > 1).await;
    up(&brokers);
    world.send(&world.sale("a", 2), Some(0)).await;
    world.until_effects(2).await;
    world.until_committed(0, 2).await;
    assert_eq!(running.stop().await.duplicates, 0);
    assert_eq!(warned().len(), 2, "{:#?}", warned());
    assert!(!logs::with(&["INFO", "reading from Kafka works again", &world.group]).is_empty());
}

/// A consumer can be stopped while the brokers are unavailable, and while a commit waits for them.
#[tokio::test(flavor = "multi_thread")]
async fn a_stop_does_not_wait_for_brokers_that_are_unavailable() {
    let Some((brokers, world)) = world().await else { return };
    world.send(&world.sale("a", 1), Some(0)).await;
    let (gate, entered) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (effects, entry, signal) = (world.clone(), Arc::clone(&gate), Arc::clone(&entered));
    // Without an answer for so long a member takes its partitions for lost, and commits nothing.
    let world = World {
        session_timeout: Duration::from_secs(15),
        ..world
    };
    let running = Running::start(world.consumer().on(
        SOLD,
        Once::per_event(),
        async move |tx: &mut PgConnection, event: Received<Sale>| {
            signal.add_permits(1);
            entry.acquire().await?.forget();
            Ok(effects.effect(tx, "a", event.payload.n).await?)
        },
    ));
    entered.acquire().await.unwrap().forget();
    down(&brokers);
    gate.add_permits(1);
    world.until_effects(1).await;
    until("it noticed", async || {
        !logs::with(&["WARN", "reading from Kafka failed", &world.group]).is_empty()
    })
    .await;
    let stopping = tokio::time::Instant::now();
    assert_eq!(running.stop().await.handled, 1);
    // A commit is given up after the session's timeout.
    assert!(stopping.elapsed() < Duration::from_mins(1), "{:?}", stopping.elapsed());
    assert_eq!(logs::with(&["WARN", "could not be committed", &world.group]).len(), 1);
}

/// Commits that are refused are made again.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_fails_is_made_again() {
    let Some((brokers, world)) = world().await else { return };
    let refused = [RDKafkaRespErr::RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED; 3];
    brokers.request_errors(RDKafkaApiKey::OffsetCommit, &refused);
    world.send(&world.sale("a", 1), Some(0)).await;
    let running = Running::start(world.counting());
    world.until_committed(0, 1).await;
    let report = running.stop().await;
    assert_eq!((report.handled, report.duplicates), (1, 0));
    let warned = logs::with(&["WARN", "committing offsets failed", &world.group]);
    assert_eq!(warned.len(), 1, "{warned:#?}");
    assert!(warned[0].contains("kafka-acls.sh"), "{warned:?}");
}

/// Partitions that are lost, because the group went on without this member, may have a new owner: nothing is committed
/// for them. What was handled comes again and is skipped.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_committed_for_partitions_that_are_lost() {
    let Some((brokers, world)) = world().await else { return };
    let sales: Vec<_> = (0..5).map(|n| (world.sale("a", n), 0)).collect();
    world.send_all(&sales).await;
    // So that a batch is not over before the loss.
    let config = world.config().max_poll_records(100);
    let (gate, entered) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (effects, entry, signal) = (world.clone(), Arc::clone(&gate), Arc::clone(&entered));
    let running = Running::start(Consumer::new(config, world.inbox()).on(
        SOLD,
        Once::per_event(),
        async move |tx: &mut PgConnection, event: Received<Sale>| {
            if event.offset == 0 {
                // Until the others are queued behind it.
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
            if event.offset == 3 {
                signal.add_permits(1);
                entry.acquire().await?.forget();
            }
            Ok(effects.effect(tx, "a", event.payload.n).await?)
        },
    ));
    entered.acquire().await.unwrap().forget();
    let before = world.committed(0).await.unwrap_or_default();
    brokers.request_errors(
        RDKafkaApiKey::Heartbeat,
        &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID],
    );
    until("the partition is lost", async || {
        !logs::with(&["giving up", "lost=true", &world.group]).is_empty()
    })
    .await;
    assert_eq!(world.committed(0).await.unwrap_or_default(), before);
    gate.add_permits(10);
    world.until_committed(0, 5).await;
    let report = running.stop().await;
    assert_eq!(i64::try_from(report.duplicates).unwrap(), 3 - before);
    let numbers: Vec<i64> = world.effects().await.into_iter().map(|(_, n)| n).collect();
    assert_eq!(numbers, [0, 1, 2, 3, 4]);
}

/// A group without an offset does not begin anywhere if it was told not to.
#[tokio::test(flavor = "multi_thread")]
async fn a_group_without_an_offset_ends_with_the_remedy_if_it_was_told_to() {
    let Some((_brokers, world)) = world().await else { return };
    world.send(&world.sale("a", 1), Some(0)).await;
    let config = world.config().auto_offset_reset(posthaste_consumer::OffsetReset::Error);
    let handler = async |_: &mut PgConnection, _: Received<Sale>| Ok(());
    let running = Running::start(Consumer::new(config, world.inbox()).on(SOLD, Once::per_event(), handler));
    let error = running.end().await.unwrap_err();
    assert!(error.to_string().contains("kafka-consumer-groups.sh"), "{error}");
}
