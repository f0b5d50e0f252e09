//! Relays as processes that are killed, stopped and starved, with an oracle over what their sink received.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod brokers;
mod kafka;
mod native_log;
mod oracle;
mod pace;
#[path = "../../../posthaste-kafka/tests/support/patient_admin.rs"]
mod patient_admin;
mod scenarios;
mod sink;
mod tables;
mod world;
mod writers;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::sys::signal::Signal;
use posthaste_servers::{PgBouncer, PoolMode};
use scenarios::{
    ATTEMPTS, HotKey, POINTS, signal, survives_a_deadly_message, survives_database_crashes, survives_deaths_at,
    survives_random_kills,
};
use sink::Sink;
use sqlx::postgres::PgConnectOptions;
use tables::Tables;
use tokio::time::sleep;
use world::World;

/// Proves A10, B7.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_wherever_a_relay_dies() {
    for point in POINTS {
        survives_deaths_at(point, &World::new().await, 8).await;
    }
}

/// Proves A2, A10, B7, B14 and pitfalls 4, 31.
#[tokio::test(flavor = "multi_thread")]
async fn hundreds_of_random_kills_lose_nothing_and_keep_the_order() {
    survives_random_kills(&World::new().await, 80, 20..250, 1_000).await;
}

/// Whichever way rows are claimed: under leases in the table's order, by locks with and without a count of attempts, or
/// by a cursor over a log.
///
/// Proves A2, A10, B7.
#[tokio::test(flavor = "multi_thread")]
async fn kills_lose_nothing_in_existing_tables() {
    let all = [
        Tables::Leased,
        Tables::BuiltinMap("logistics"),
        Tables::BuiltinMap("order-service"),
        Tables::BuiltinMap("commerce"),
    ];
    for tables in all {
        let world = World::over(tables).await;
        survives_random_kills(&world, 15, 100..700, 300).await;
        let log = world.log();
        assert!(!log.contains("panicked"), "{tables:?}: {log}");
    }
}

/// Relays and producers share four server sessions, and nothing that one of them leaves in a session hurts another.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_behind_a_pooler_in_transaction_mode() {
    let server = std::env::var("POSTHASTE_TEST_POSTGRES_URL").unwrap();
    let port = server.parse::<PgConnectOptions>().unwrap().get_port();
    let bouncer = PgBouncer::start(&std::env::temp_dir(), port, PoolMode::Transaction, 4)
        .expect("PgBouncer is installed: run these tests with `cargo xtask test`");
    let world = World::behind(bouncer.url("postgres"), &server, Sink::File).await;
    survives_random_kills(&world, 34, 50..400, 300).await;
    let log = world.log();
    assert!(!log.contains("prepared statement"), "{log}");
}

/// Proves A10.
#[tokio::test(flavor = "multi_thread")]
async fn the_database_may_crash_under_load() {
    survives_database_crashes(Tables::Native).await;
}

/// A relay is frozen after it published and before it settled; another one takes over; then the first goes on.
///
/// Proves B9 and pitfall 6.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_runs_out_in_the_middle_is_noticed() {
    let world = World::new().await;
    for n in 0..5 {
        world.transact("k", n, true).await.unwrap();
    }
    let mut frozen = world.start_relay(&[("FAILPOINTS", "before_settle=1*sleep(2000)")]);
    world
        .wait_for("the first delivery", async || !world.deliveries().await.is_empty())
        .await;
    // The delivery is in the file before the file is closed and unlocked; the relay then waits for two seconds.
    sleep(Duration::from_millis(300)).await;
    signal(&frozen, Signal::SIGSTOP);
    world.has_killed(1);
    let _second = world.start_relay(&[]);
    world.drained().await;
    signal(&frozen, Signal::SIGCONT);
    world
        .wait_for("the lost lease to be noticed", async || {
            world.log().contains("lost the lease")
        })
        .await;
    signal(&frozen, Signal::SIGTERM);
    frozen.wait().await.unwrap();
    let verdict = world.assert_sound().await;
    assert_eq!((verdict.delivered, verdict.duplicates), (5, 5));
}

/// Proves B14 and pitfall 31.
#[tokio::test(flavor = "multi_thread")]
async fn relays_with_the_same_configuration_share_the_work() {
    let world = World::new().await;
    let stop = Arc::new(AtomicBool::new(false));
    let producers = world.produce(4, &stop);
    let relays = [(); 4].map(|()| world.start_relay(&[]));
    sleep(Duration::from_secs(2)).await;
    stop.store(true, Ordering::Relaxed);
    producers.join_all().await;
    world.drained().await;
    for mut relay in relays {
        signal(&relay, Signal::SIGTERM);
        assert!(relay.wait().await.unwrap().success());
    }
    let verdict = world.assert_sound().await;
    assert_eq!(verdict.duplicates, 0, "nobody died, so nothing may come twice");
}

/// Proves pitfall 18.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_with_nearly_all_of_the_backlog_does_not_starve_the_rest() {
    let world = World::new().await;
    let backlog = HotKey::enqueue(&world).await;
    let others = backlog.cold.clone();
    backlog.starves_nobody(&world, &others).await;
}

/// Proves B8 and pitfall 33.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_kills_the_process_dies_alone() {
    // As many processes as it has attempts.
    survives_a_deadly_message(Tables::Native, ATTEMPTS..=ATTEMPTS).await;
}
