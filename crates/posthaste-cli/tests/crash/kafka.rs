//! The same with a real Kafka of three brokers, which die too.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use chrono::{DateTime, Utc};
use posthaste_core::lifecycle::State;
use posthaste_core::store::{Filter, RelayRegistry};
use posthaste_core::{AdminStore, Message, OutboxOptions, RelayStore};
use posthaste_servers::KafkaCluster;
use sqlx::AssertSqlSafe;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::sleep;

use crate::sink::Sink;
use crate::world::World;

/// Whether the test runner said that there is no Kafka on this machine.
fn left_out() -> bool {
    let without = std::env::var("POSTHASTE_TEST_WITHOUT").unwrap_or_default();
    let left_out = without.split(',').any(|server| server == "kafka");
    if left_out {
        eprintln!("NOT RUN: this test needs Apache Kafka");
    }
    left_out
}

/// The cluster that all tests share, for those that break nothing of it.
fn shared() -> String {
    std::env::var("POSTHASTE_TEST_KAFKA")
        .expect("POSTHASTE_TEST_KAFKA names no cluster: run these tests with `cargo xtask test`")
}

/// The cluster that the tests in this file may break, one after the other. A guard process ends it with this one.
async fn brokers() -> (&'static KafkaCluster, MutexGuard<'static, ()>) {
    static TURN: Mutex<()> = Mutex::const_new(());
    static CLUSTER: OnceLock<KafkaCluster> = OnceLock::new();
    let turn = TURN.lock().await;
    let start = || CLUSTER.get_or_init(|| KafkaCluster::start(&std::env::temp_dir()).unwrap());
    (tokio::task::spawn_blocking(start).await.unwrap(), turn)
}

async fn blocking(action: impl FnOnce() -> posthaste_servers::Result<()> + Send + 'static) {
    tokio::task::spawn_blocking(action).await.unwrap().unwrap();
}

/// One broker of three is left, which takes messages but may not acknowledge them alone. They are delivered, with the
/// time, only when the others are back.
///
/// Proves A5.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_acknowledged_is_not_delivered() {
    if left_out() {
        return;
    }
    let (cluster, _turn) = brokers().await;
    let world = World::with_sink(Sink::kafka(&cluster.bootstrap()).await).await;
    let _relay = world.start_relay(&[("POSTHASTE_RELAY__BREAKER__OPEN_FOR", "1s")]);
    world.transact("k", 1, true).await.unwrap();
    world.drained().await;
    blocking(move || cluster.kill(1)).await;
    blocking(move || cluster.kill(2)).await;
    let id = world.transact("k", 2, true).await.unwrap();
    sleep(Duration::from_secs(5)).await;
    let row = world.store().show(id).await.unwrap().unwrap();
    assert_ne!(row.state, State::Delivered, "nobody acknowledged it: {row:?}");
    let alone = row.updated_at;
    blocking(|| cluster.start_all_again()).await;
    world.drained().await;
    let row = world.store().show(id).await.unwrap().unwrap();
    assert_eq!(row.state, State::Delivered);
    assert!(
        row.updated_at > alone,
        "delivered at the time of the acknowledgement: {row:?}"
    );
    world.has_killed(1);
    world.assert_sound().await;
}

/// Proves A10.
#[tokio::test(flavor = "multi_thread")]
async fn each_broker_in_turn_may_die_under_load() {
    if left_out() {
        return;
    }
    let (cluster, _turn) = brokers().await;
    let world = World::with_sink(Sink::kafka(&cluster.bootstrap()).await).await;
    let stop = Arc::new(AtomicBool::new(false));
    let producers = world.produce(4, &stop);
    let _relays = [world.start_relay(&[]), world.start_relay(&[])];
    for broker in 0..cluster.brokers() {
        sleep(Duration::from_secs(1)).await;
        blocking(move || cluster.kill(broker)).await;
        sleep(Duration::from_secs(4)).await;
        blocking(move || cluster.start_again(broker)).await;
        // What a broker took to its grave without an answer is sent again, by both relays.
        world.has_killed(2);
    }
    world.has_committed(300).await;
    stop.store(true, Ordering::Relaxed);
    producers.join_all().await;
    world.drained().await;
    world.assert_sound().await;
    assert_eq!(dead(&world).await, 0);
}

/// A whole minute, and not one message has used up its attempts: while the circuit is open nothing is tried.
///
/// Proves C6 and C17.
#[tokio::test(flavor = "multi_thread")]
async fn all_brokers_may_be_unavailable_while_producers_go_on() {
    if left_out() {
        return;
    }
    let (cluster, _turn) = brokers().await;
    let world = World::with_sink(Sink::kafka(&cluster.bootstrap()).await).await;
    let stop = Arc::new(AtomicBool::new(false));
    let producers = world.produce(2, &stop);
    let settings = [
        ("POSTHASTE_RELAY__RETRY__MAX_ATTEMPTS", "5"),
        ("POSTHASTE_RELAY__BREAKER__OPEN_FOR", "3s"),
        ("POSTHASTE_PUBLISHER__ANSWER_WITHIN", "10s"),
    ];
    let _relays = [world.start_relay(&settings), world.start_relay(&settings)];
    world
        .wait_for("a first delivery", async || !world.deliveries().await.is_empty())
        .await;
    let log = world.log();
    assert!(
        !log.contains("circuit") && !log.contains("ERROR"),
        "silent when well\n{log}"
    );
    blocking(|| cluster.kill_all()).await;
    sleep(Duration::from_mins(1)).await;
    let during = world.committed().await.len();
    blocking(|| cluster.start_all_again()).await;
    stop.store(true, Ordering::Relaxed);
    producers.join_all().await;
    world.drained().await;
    // Each trial of the open circuit may have been received without an answer.
    world.has_killed(2 * 20);
    let verdict = world.assert_sound().await;
    assert!(during > 1_000, "producers stood still: {during}");
    assert!(verdict.delivered >= during, "{verdict:?}");
    assert_eq!(dead(&world).await, 0, "{}", world.log());
    let log = world.log();
    for said in [
        // Half of them or more: what was on its way when the brokers died comes in first.
        "ERROR posthaste_relay::guard::circuit: ",
        " % of the latest deliveries failed because the broker is unavailable",
        "WARN posthaste_relay::guard::circuit: the circuit is open",
        "WARN posthaste_relay::guard::circuit: the circuit is half-open",
        "WARN posthaste_relay::guard::circuit: the circuit is closed",
    ] {
        assert!(log.contains(said), "{said}?\n{log}");
    }
}

/// Proves A10, B7 and pitfall 32.
#[tokio::test(flavor = "multi_thread")]
async fn relays_may_die_with_batches_in_flight() {
    const KILLS_EACH: usize = 12;
    if left_out() {
        return;
    }
    let (cluster, _turn) = brokers().await;
    let world = World::with_sink(Sink::kafka(&cluster.bootstrap()).await).await;
    let stop = Arc::new(AtomicBool::new(false));
    let producers = world.produce(6, &stop);
    futures::future::join_all([(); 2].map(|()| kill_again_and_again(&world, KILLS_EACH))).await;
    world.has_committed(500).await;
    stop.store(true, Ordering::Relaxed);
    producers.join_all().await;
    let _survivors = [world.start_relay(&[]), world.start_relay(&[])];
    world.drained().await;
    world.assert_sound().await;
}

/// Three relays, one of which delivers. It is killed, and nobody takes over before its time, by the database's clock.
///
/// Proves C8.
#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_relays_is_active_and_is_followed_when_its_lease_is_over() {
    if left_out() {
        return;
    }
    let world = World::with_sink(Sink::kafka(&shared()).await).await;
    let settings = [
        ("POSTHASTE_RELAY__EXCLUSIVE", "true"),
        ("POSTHASTE_RELAY__EXCLUSIVE_LEASE", "4s"),
    ];
    let mut relays = [(); 3]
        .map(|()| world.start_relay(&settings))
        .into_iter()
        .collect::<Vec<_>>();
    let stop = Arc::new(AtomicBool::new(false));
    let producers = world.produce(4, &stop);
    for _ in 0..2 {
        let some = world.deliveries().await.len();
        let more = async || world.deliveries().await.len() > some && leaders(&world).await.len() == 1;
        world.wait_for("a leader that delivers", more).await;
        let leader = leaders(&world).await[0];
        let place = relays.iter().position(|relay| relay.id() == Some(leader));
        world
            .kill(relays.swap_remove(place.expect("the leader is one of ours")))
            .await;
        let (killed, until) = times(&world).await;
        let followed = async || {
            world
                .store()
                .relays("default")
                .await
                .unwrap()
                .iter()
                .any(|relay| relay.leads && relay.pid != leader)
        };
        world.wait_for("another leader", followed).await;
        let more = async || first_delivery_after(&world, killed).await.is_some();
        world.wait_for("its first delivery", more).await;
        let first = first_delivery_after(&world, killed).await;
        assert!(first > Some(until), "{first:?} is before {until}\n{}", world.log());
    }
    stop.store(true, Ordering::Relaxed);
    producers.join_all().await;
    world.drained().await;
    world.assert_sound().await;
    assert!(world.log().contains("standing by"), "{}", world.log());
}

/// The processes of the relays that lead.
async fn leaders(world: &World) -> Vec<u32> {
    let relays = world.store().relays("default").await.unwrap();
    relays
        .iter()
        .filter(|relay| relay.leads)
        .map(|relay| relay.pid)
        .collect()
}

/// Now, and when the lead is over that was last taken.
async fn times(world: &World) -> (DateTime<Utc>, DateTime<Utc>) {
    let sql = format!(
        "select clock_timestamp(), until from {}.leaders where namespace = 'default'",
        world.schema
    );
    sqlx::query_as(AssertSqlSafe(sql)).fetch_one(&world.pool).await.unwrap()
}

async fn first_delivery_after(world: &World, time: DateTime<Utc>) -> Option<DateTime<Utc>> {
    let sql = format!(
        "select min(updated_at) from {}.outbox where status = 'delivered' and updated_at > $1",
        world.schema
    );
    sqlx::query_scalar(AssertSqlSafe(sql))
        .bind(time)
        .fetch_one(&world.pool)
        .await
        .unwrap()
}

/// The commerce pipeline's policy on our own tables: every 500 ms up to 100 rows, published side by side and all
/// awaited. What failed waits for its retry with its error, what was behind it in other keys has gone, and nothing is
/// skipped.
///
/// Proves C5.
#[tokio::test(flavor = "multi_thread")]
async fn failures_are_set_aside_and_what_was_not_attempted_is_not_skipped() {
    if left_out() {
        return;
    }
    let brokers = shared();
    let world = World::with_sink(Sink::kafka(&brokers).await).await;
    let missing = format!("crash-missing-{}", uuid::Uuid::new_v4().simple());
    let outbox = world.store().outbox(OutboxOptions::default());
    for n in 0..250 {
        if n % 50 == 0 {
            let mut tx = world.pool.begin().await.unwrap();
            let lost = Message::new(missing.as_str(), "{}").key(format!("m{n}"));
            outbox.enqueue(&mut tx, lost).await.unwrap();
            tx.commit().await.unwrap();
        }
        world.transact(&format!("k{}", n % 40), n, true).await.unwrap();
    }
    let settings = [
        ("POSTHASTE_RELAY__BATCH_SIZE", "100"),
        ("POSTHASTE_RELAY__MAX_IN_FLIGHT", "100"),
        ("POSTHASTE_RELAY__POLL_INTERVAL", "500ms"),
        ("POSTHASTE_RELAY__MAX_POLL_INTERVAL", "500ms"),
        ("POSTHASTE_RELAY__LEASE", "30s"),
        ("POSTHASTE_RELAY__PUBLISH_TIMEOUT", "30s"),
        ("POSTHASTE_RELAY__RETRY__MAX_ATTEMPTS", "1000"),
    ];
    let relay = world.start_relay(&settings);
    let others = async || world.deliveries().await.len() >= 250;
    world.wait_for("all that has a topic to be delivered", others).await;
    let filter = Filter {
        topic: Some(missing.clone()),
        ..Filter::default()
    };
    let told = async || {
        let aside = world.store().list(&filter, None, 100).await.unwrap();
        aside
            .iter()
            .filter(|row| {
                let error = row.last_error.as_ref();
                error.is_some_and(|error| error.contains("does not exist"))
            })
            .count()
            == 5
    };
    world
        .wait_for("the failures to be set aside with their error", told)
        .await;
    Sink::create(&brokers, &missing).await;
    world.drained().await;
    drop(relay);
    world.assert_sound().await;
    assert_eq!(dead(&world).await, 0);
    let aside = world.store().list(&filter, None, 100).await.unwrap();
    assert!(aside.iter().all(|row| row.state == State::Delivered), "{aside:?}");
}

/// Keeps one relay running that is killed while it, or its neighbour, delivers.
async fn kill_again_and_again(world: &World, kills: usize) {
    for _ in 0..kills {
        let before = world.deliveries().await.len();
        let relay = world.start_relay(&[]);
        let more = async || world.deliveries().await.len() > before;
        world.wait_for("more deliveries", more).await;
        sleep(Duration::from_millis(rand::random_range(0..400))).await;
        world.kill(relay).await;
    }
}

async fn dead(world: &World) -> u64 {
    world.store().stats("default").await.unwrap().dead
}
