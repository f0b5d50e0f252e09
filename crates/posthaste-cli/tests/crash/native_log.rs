//! The same with Posthaste's own log, in one shard and in several: segments come and go, and producers write in every way.

use std::collections::HashSet;
use std::fs::File;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::sys::signal::Signal;
use posthaste_core::Message;
use sqlx::AssertSqlSafe;
use tokio::process::Child;
use tokio::time::{Instant, sleep, timeout};

use crate::scenarios::{
    ATTEMPTS, HotKey, LONG_LEASE, POINTS, signal, survives_a_deadly_message, survives_database_crashes,
    survives_deaths_at, survives_random_kills,
};
use crate::tables::Tables;
use crate::world::World;

/// How long relays live at the least, in milliseconds: some begin to read, and some do not.
const LIVES: Range<u64> = 200..1_200;

/// A second or two, and more for a machine that has other work; much less than a [long lease](LONG_LEASE) in any case.
const HANDED_OVER_WITHIN: Duration = Duration::from_secs(30);

async fn log_of(shards: u32) -> Arc<World> {
    World::over(Tables::NativeLog { shards }).await
}

/// Proves A10, B7, C9.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_wherever_a_reader_of_the_log_dies() {
    for (point, shards) in POINTS.into_iter().zip([1, 3].into_iter().cycle()) {
        survives_deaths_at(point, &log_of(shards).await, 3).await;
    }
}

/// Proves A2, A10, B7, C9.
#[tokio::test(flavor = "multi_thread")]
async fn random_kills_lose_nothing_of_the_log_and_repeat_little() {
    let world = log_of(1).await;
    let survivors = survives_random_kills(&world, 8, LIVES, 300).await;
    assert!(world.unwritten() > 0, "those that died had delivered something");
    segments_are_dropped(&world).await;
    drop(survivors);
}

/// Proves A2, A10, B7, C9.
#[tokio::test(flavor = "multi_thread")]
async fn shards_may_be_raised_while_relays_are_killed() {
    let world = log_of(1).await;
    let raised = Arc::clone(&world);
    let raising = tokio::spawn(async move {
        for shards in [2, 3, 5] {
            sleep(Duration::from_millis(1_500)).await;
            raise_shards(&raised, shards).await;
        }
    });
    let survivors = survives_random_kills(&world, 10, LIVES, 300).await;
    assert!(world.unwritten() > 0, "those that died had delivered something");
    raising.await.unwrap();
    let generations = count(&world, "log_generations where switched_at is not null").await;
    assert_eq!(generations, 4);
    let written_to = count(
        &world,
        "log_shards s where s.generation > 1 and s.hi > s.shard::bigint << 44",
    )
    .await;
    assert!(
        written_to >= 6,
        "all generations had rows, but only {written_to} shards"
    );
    segments_are_dropped(&world).await;
    drop(survivors);
}

/// It waits for no lock for long, so it may have to be asked again.
async fn raise_shards(world: &World, shards: u32) {
    for _ in 0..20 {
        if world.log_tables().raise_shards(shards).await.is_ok() {
            return;
        }
        sleep(Duration::from_millis(100)).await;
    }
    panic!("the shards cannot be raised to {shards}");
}

async fn count(world: &World, rows: &'static str) -> i64 {
    let sql = format!("select count(*) from {}.{rows}", world.schema);
    sqlx::query_scalar(AssertSqlSafe(sql))
        .fetch_one(&world.pool)
        .await
        .unwrap()
}

async fn segments_are_dropped(world: &World) {
    world
        .wait_for("a segment to be dropped", async || {
            count(world, "log_segments where dropped_at is not null").await > 0
        })
        .await;
}

/// What is settled and what is not is written down, however far a transaction holds the position back.
///
/// Proves B7, C9.
#[tokio::test(flavor = "multi_thread")]
async fn a_kill_repeats_nothing_that_was_settled_beside_an_open_transaction() {
    let world = log_of(1).await;
    let mut open = world.pool.begin().await.unwrap();
    let held = Message::new("orders", "{}").key("held");
    world.enqueue(&mut open, vec![held]).await.unwrap();
    for round in 0..4 {
        for n in 0..30 {
            world.transact("k", round * 30 + n, true).await.unwrap();
        }
        let relay = world.start_relay(&[]);
        world.drained().await;
        world.kill(relay).await;
    }
    open.rollback().await.unwrap();
    let verdict = world.assert_sound().await;
    assert_eq!(verdict.duplicates, 0, "nothing was in flight");
}

/// Proves A10.
#[tokio::test(flavor = "multi_thread")]
async fn the_database_may_crash_under_the_load_of_a_log() {
    survives_database_crashes(Tables::NativeLog { shards: 2 }).await;
}

/// It was not alone in the first that it killed, and counts an attempt only where it was.
///
/// Proves B8 and pitfall 33.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_kills_each_reader_of_a_log_dies_alone() {
    survives_a_deadly_message(Tables::NativeLog { shards: 2 }, ATTEMPTS..=ATTEMPTS + 3).await;
}

/// Whatever was committed by now is delivered soon.
async fn delivers_all_within(world: &World, time: Duration) {
    let wanted: HashSet<_> = world.committed().await.into_iter().map(|event| event.id).collect();
    let delivered = async {
        loop {
            let seen: HashSet<_> = world.deliveries().await.into_iter().collect();
            if wanted.is_subset(&seen) {
                return;
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    let begun = Instant::now();
    let in_time = timeout(time, delivered).await.is_ok();
    assert!(
        in_time,
        "nobody delivers all of it, for {:?}\n{}",
        begun.elapsed(),
        world.log()
    );
    eprintln!("all was delivered after {:?}", begun.elapsed());
}

/// Two relays are frozen for longer than their leases, one after the other, while they read. The other one takes over.
///
/// Proves B9 and pitfall 6.
#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_reader_is_relieved_and_breaks_no_order() {
    let world = log_of(2).await;
    let stop = Arc::new(AtomicBool::new(false));
    let producers = world.produce(4, &stop);
    let mut relays = [world.start_relay(&[]), world.start_relay(&[])];
    readers(&world, 2).await;
    for round in 0..4 {
        let frozen = &relays[round % 2];
        freeze(&world, frozen).await;
        delivers_all_within(&world, Duration::from_secs(20)).await;
        signal(frozen, Signal::SIGCONT);
        // What it held was in flight, or not written down.
        world.has_killed(1);
        delivers_all_within(&world, Duration::from_secs(20)).await;
        readers(&world, 2).await;
    }
    stop.store(true, Ordering::Relaxed);
    producers.join_all().await;
    world.drained().await;
    for relay in &mut relays {
        signal(relay, Signal::SIGTERM);
        relay.wait().await.unwrap();
    }
    world.assert_sound().await;
}

/// It claims nothing, so whoever leads must read all shards, also when the former leader is there again.
///
/// Proves C8.
#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_lost_the_lead_keeps_no_shard() {
    const EXCLUSIVE: [(&str, &str); 2] = [
        ("POSTHASTE_RELAY__EXCLUSIVE", "true"),
        ("POSTHASTE_RELAY__EXCLUSIVE_LEASE", "8s"),
    ];
    let world = log_of(3).await;
    let former = world.start_relay(&EXCLUSIVE);
    deliver_of_all_keys(&world, 0).await;
    let _leader = world.start_relay(&EXCLUSIVE);
    freeze(&world, &former).await;
    deliver_of_all_keys(&world, 1).await;
    signal(&former, Signal::SIGCONT);
    world.has_killed(1);
    world
        .wait_for("the former leader to stand by", async || {
            world.log().contains("lost the lead")
        })
        .await;
    readers(&world, 1).await;
    // For longer than an instance takes to ask for its share.
    let back = Instant::now();
    for round in 2.. {
        deliver_of_all_keys(&world, round).await;
        assert_eq!(owners(&world).await, 1, "{}", world.log());
        if back.elapsed() > Duration::from_secs(8) {
            break;
        }
    }
    world.assert_sound().await;
}

async fn deliver_of_all_keys(world: &World, round: i64) {
    for key in 0..20 {
        world.transact(&format!("k{key}"), round, true).await.unwrap();
    }
    world.drained().await;
}

/// Freezes a relay, but not while it has the file that all of them write.
async fn freeze(world: &World, relay: &Child) {
    loop {
        signal(relay, Signal::SIGSTOP);
        let file = File::open(world.sink_file()).unwrap();
        for _ in 0..10 {
            if file.try_lock_shared().is_ok() {
                return;
            }
            sleep(Duration::from_millis(10)).await;
        }
        signal(relay, Signal::SIGCONT);
        sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until the shards are shared out among so many relays.
async fn readers(world: &World, relays: i64) {
    world
        .wait_for("the shards to be shared out", async || owners(world).await == relays)
        .await;
}

async fn owners(world: &World) -> i64 {
    let owners = "select count(distinct owner) from {schema}.log_shards where leased_until > clock_timestamp()
        and generation = (select max(generation) from {schema}.log_generations)";
    let sql = owners.replace("{schema}", &world.schema);
    sqlx::query_scalar(AssertSqlSafe(sql))
        .fetch_one(&world.pool)
        .await
        .unwrap()
}

/// Relays are replaced one by one, as a deployment does.
///
/// Proves A10, C9.
#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_is_told_to_stop_hands_over_at_once_and_repeats_nothing() {
    let world = log_of(3).await;
    let stop = Arc::new(AtomicBool::new(false));
    let producers = world.produce(4, &stop);
    let mut relays = vec![world.start_relay(&LONG_LEASE), world.start_relay(&LONG_LEASE)];
    for _ in 0..3 {
        readers(&world, 2).await;
        let mut stopped = relays.remove(0);
        signal(&stopped, Signal::SIGTERM);
        assert!(stopped.wait().await.unwrap().success());
        delivers_all_within(&world, HANDED_OVER_WITHIN).await;
        relays.push(world.start_relay(&LONG_LEASE));
    }
    stop.store(true, Ordering::Relaxed);
    producers.join_all().await;
    world.drained().await;
    let verdict = world.assert_sound().await;
    assert_eq!(verdict.duplicates, 0, "nobody died, so nothing may come twice");
}

/// Proves B14 and pitfall 31.
#[tokio::test(flavor = "multi_thread")]
async fn relays_share_the_shards_of_a_log() {
    let world = log_of(3).await;
    let relays = [(); 3].map(|()| world.start_relay(&LONG_LEASE));
    readers(&world, 3).await;
    let stop = Arc::new(AtomicBool::new(false));
    let producers = world.produce(4, &stop);
    world.has_committed(500).await;
    stop.store(true, Ordering::Relaxed);
    producers.join_all().await;
    world.drained().await;
    for mut relay in relays {
        signal(&relay, Signal::SIGTERM);
        assert!(relay.wait().await.unwrap().success());
    }
    let verdict = world.assert_sound().await;
    assert_eq!(verdict.duplicates, 0, "nobody died, so nothing may come twice");
    let log = world.log();
    let stopped = log.lines().filter(|line| line.contains("relay stopped"));
    let shares: Vec<_> = stopped.map(|line| !line.contains(" delivered=0 ")).collect();
    assert_eq!(shares, [true; 3], "each of them delivered something\n{log}");
}

/// A shard is delivered in its order, however much of it is of one key; the others do not wait for it.
///
/// Proves pitfall 18.
#[tokio::test(flavor = "multi_thread")]
async fn a_hot_key_keeps_nobody_waiting_in_other_shards() {
    let world = log_of(3).await;
    let backlog = HotKey::enqueue(&world).await;
    let elsewhere = format!(
        "select id from {schema}.log where shard <> (select distinct shard from {schema}.log where ordering_key = 'hot')",
        schema = world.schema
    );
    let elsewhere: Vec<uuid::Uuid> = sqlx::query_scalar(AssertSqlSafe(elsewhere))
        .fetch_all(&world.pool)
        .await
        .unwrap();
    let elsewhere: Vec<_> = elsewhere.into_iter().map(Into::into).collect();
    assert!(elsewhere.len() > 10, "{elsewhere:?}");
    backlog.starves_nobody(&world, &elsewhere).await;
}
