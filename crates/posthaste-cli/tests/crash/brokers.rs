//! What is done to brokers, and to relays that deliver to them, whatever tables they serve.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use posthaste_core::lifecycle::State;
use posthaste_core::store::Filter;
use posthaste_core::{Message, MessageId};
use posthaste_servers::KafkaCluster;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::sleep;

use crate::sink::Sink;
use crate::tables::Tables;
use crate::world::World;

/// The cluster that all tests share, for those that break nothing of it.
pub fn shared() -> String {
    std::env::var("POSTHASTE_TEST_KAFKA")
        .expect("POSTHASTE_TEST_KAFKA names no cluster: run these tests with `cargo xtask test`")
}

/// The cluster that tests may break, one after the other. A guard process ends it with this one.
pub async fn brokers() -> (&'static KafkaCluster, MutexGuard<'static, ()>) {
    static TURN: Mutex<()> = Mutex::const_new(());
    static CLUSTER: OnceLock<KafkaCluster> = OnceLock::new();
    let turn = TURN.lock().await;
    let start = || CLUSTER.get_or_init(|| KafkaCluster::start(&std::env::temp_dir()).unwrap());
    (tokio::task::spawn_blocking(start).await.unwrap(), turn)
}

pub async fn blocking(action: impl FnOnce() -> posthaste_servers::Result<()> + Send + 'static) {
    tokio::task::spawn_blocking(action).await.unwrap().unwrap();
}

async fn over(tables: Tables, brokers: &str) -> Arc<World> {
    World::delivering(tables, Sink::kafka(brokers).await).await
}

/// Kills each broker for so long, one after the other, under load.
pub async fn survives_dying_brokers(tables: Tables, outage: Duration) {
    let (cluster, _turn) = brokers().await;
    let world = over(tables, &cluster.bootstrap()).await;
    let stop = Arc::new(AtomicBool::new(false));
    let producers = world.produce(4, &stop);
    let _relays = [world.start_relay(&[]), world.start_relay(&[])];
    world.has_delivered(1).await;
    for broker in 0..cluster.brokers() {
        sleep(Duration::from_secs(1)).await;
        blocking(move || cluster.kill(broker)).await;
        sleep(outage).await;
        blocking(move || cluster.start_again(broker)).await;
        // What a broker took to its grave without an answer is sent again, by both relays.
        world.has_cut_off(2);
    }
    world.has_committed(300).await;
    stop.store(true, Ordering::Relaxed);
    producers.join_all().await;
    world.drained().await;
    world.assert_sound().await;
    assert_eq!(world.dead().await, 0);
}

/// All brokers are gone for a while.
pub struct Outage {
    pub lasts: Duration,
    /// How long a message may be without an answer.
    pub answer_within: &'static str,
    /// How long an open circuit tries nothing.
    pub open_for: &'static str,
    /// How many events are written meanwhile by producers that do not stand still.
    pub events: usize,
}

/// Kills all brokers under load. While the circuit is open nothing is tried, so no message uses up its attempts.
pub async fn survives_an_outage(tables: Tables, outage: &Outage) {
    let (cluster, _turn) = brokers().await;
    let world = over(tables, &cluster.bootstrap()).await;
    let stop = Arc::new(AtomicBool::new(false));
    let producers = world.produce(2, &stop);
    let settings = [
        ("POSTHASTE_RELAY__RETRY__MAX_ATTEMPTS", "5"),
        ("POSTHASTE_RELAY__BREAKER__OPEN_FOR", outage.open_for),
        ("POSTHASTE_PUBLISHER__ANSWER_WITHIN", outage.answer_within),
    ];
    let _relays = [world.start_relay(&settings), world.start_relay(&settings)];
    world.has_delivered(1).await;
    let log = world.log();
    assert!(
        !log.contains("circuit") && !log.contains("ERROR"),
        "silent when well\n{log}"
    );
    blocking(|| cluster.kill_all()).await;
    sleep(outage.lasts).await;
    let during = world.committed().await.len();
    blocking(|| cluster.start_all_again()).await;
    stop.store(true, Ordering::Relaxed);
    producers.join_all().await;
    world.drained().await;
    // Each trial of the open circuit may have been received without an answer.
    world.has_cut_off(2 * 20);
    let verdict = world.assert_sound().await;
    assert!(during > outage.events, "producers stood still: {during}");
    assert!(verdict.delivered >= during, "{verdict:?}");
    assert_eq!(world.dead().await, 0, "{}", world.log());
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

/// Kills two relays again and again while they, or their neighbours, deliver to brokers that are well.
pub async fn survives_kills_in_flight(tables: Tables, kills_each: usize) -> Arc<World> {
    let (cluster, _turn) = brokers().await;
    let world = over(tables, &cluster.bootstrap()).await;
    let stop = Arc::new(AtomicBool::new(false));
    let producers = world.produce(6, &stop);
    futures::future::join_all([(); 2].map(|()| kill_again_and_again(&world, kills_each))).await;
    world.has_committed(500).await;
    stop.store(true, Ordering::Relaxed);
    producers.join_all().await;
    let _survivors = [world.start_relay(&[]), world.start_relay(&[])];
    world.drained().await;
    world.assert_sound().await;
    world
}

/// Keeps one relay running that is killed while it, or its neighbour, delivers.
async fn kill_again_and_again(world: &World, kills: usize) {
    for _ in 0..kills {
        let before = world.delivered();
        let relay = world.start_relay(&[]);
        world.has_delivered(before + 1).await;
        sleep(Duration::from_millis(rand::random_range(0..400))).await;
        world.kill(relay).await;
    }
}

/// Some messages have no topic. They wait for their retry with their error, what was behind them in other keys has gone,
/// and nothing is skipped.
pub async fn sets_failures_aside(tables: Tables) {
    let brokers = shared();
    let world = over(tables, &brokers).await;
    let missing = format!("crash-missing-{}", uuid::Uuid::new_v4().simple());
    let mut aside = Vec::new();
    for n in 0..250 {
        if n % 50 == 0 {
            let lost = Message::new(missing.as_str(), "{}").key(format!("m{n}"));
            aside.push(lost.id);
            let mut tx = world.pool.begin().await.unwrap();
            world.enqueue(&mut tx, vec![lost]).await.unwrap();
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
        ("POSTHASTE_RELAY__BREAKER__OPEN_FOR", "5s"),
    ];
    let relay = world.start_relay(&settings);
    let others = world.committed().await.len();
    world.has_delivered(others).await;
    let filter = Filter {
        topic: Some(missing.clone()),
        ..Filter::default()
    };
    let told = async || {
        let listed = world.admin().list(&filter, None, 100).await.unwrap();
        let errors = listed.iter().filter_map(|row| row.last_error.as_ref());
        let errors = errors.filter(|error| error.contains("does not exist")).count();
        match tables {
            // A row of a log that has used no attempt is where it was, and has no place for an error.
            Tables::NativeLog { .. } => errors > 0 && listed.len() == aside.len(),
            _ => errors == aside.len(),
        }
    };
    world
        .wait_for("the failures to be set aside with their error", told)
        .await;
    Sink::create(&brokers, &missing).await;
    world.drained().await;
    drop(relay);
    world.assert_sound().await;
    assert_eq!(world.dead().await, 0);
    let mut received = Sink::received(&brokers, &missing).await;
    received.sort_unstable_by_key(MessageId::to_string);
    aside.sort_unstable_by_key(MessageId::to_string);
    assert_eq!(received, aside);
    for id in aside {
        // What a log has delivered goes with its segment.
        let row = world.admin().show(id).await.unwrap();
        let delivered = match tables {
            Tables::NativeLog { .. } => row.as_ref().is_none_or(|row| row.state == State::Delivered),
            _ => row.as_ref().is_some_and(|row| row.state == State::Delivered),
        };
        assert!(delivered, "{row:?}");
    }
}
