//! The same with a real Kafka of three brokers, which die too.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chrono::{DateTime, Utc};
use posthaste_core::AdminStore;
use posthaste_core::lifecycle::State;
use posthaste_core::store::RelayRegistry;
use sqlx::AssertSqlSafe;
use tokio::time::sleep;

use crate::brokers::{
    Outage, blocking, brokers, sets_failures_aside, shared, survives_an_outage, survives_dying_brokers,
    survives_kills_in_flight,
};
use crate::sink::Sink;
use crate::tables::Tables;
use crate::world::World;

/// Posthaste's own log. Its segments come and go within seconds, and each of its shards has a reader.
const LOG: Tables = Tables::NativeLog { shards: 2 };

/// Whether the test runner said that there is no Kafka on this machine.
fn left_out() -> bool {
    let without = std::env::var("POSTHASTE_TEST_WITHOUT").unwrap_or_default();
    let left_out = without.split(',').any(|server| server == "kafka");
    if left_out {
        eprintln!("NOT RUN: this test needs Apache Kafka");
    }
    left_out
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
    survives_dying_brokers(Tables::Native, Duration::from_secs(4)).await;
}

/// Each is away for long enough to lose what it led.
///
/// Proves A10.
#[tokio::test(flavor = "multi_thread")]
async fn each_broker_in_turn_may_die_under_the_load_of_a_log() {
    if left_out() {
        return;
    }
    survives_dying_brokers(LOG, Duration::from_secs(4)).await;
}

/// A whole minute, and not one message has used up its attempts: while the circuit is open nothing is tried.
///
/// Proves C6 and C17.
#[tokio::test(flavor = "multi_thread")]
async fn all_brokers_may_be_unavailable_while_producers_go_on() {
    if left_out() {
        return;
    }
    let outage = Outage {
        lasts: Duration::from_mins(1),
        answer_within: "10s",
        open_for: "3s",
        events: 1_000,
    };
    survives_an_outage(Tables::Native, &outage).await;
}

/// Not for as long, but for more trials than a message has attempts.
///
/// Proves C6 and C17.
#[tokio::test(flavor = "multi_thread")]
async fn all_brokers_may_be_unavailable_while_producers_go_on_writing_to_a_log() {
    if left_out() {
        return;
    }
    let outage = Outage {
        lasts: Duration::from_secs(20),
        answer_within: "2s",
        open_for: "1s",
        events: 300,
    };
    survives_an_outage(LOG, &outage).await;
}

/// Proves A10, B7 and pitfall 32.
#[tokio::test(flavor = "multi_thread")]
async fn relays_may_die_with_batches_in_flight() {
    if left_out() {
        return;
    }
    survives_kills_in_flight(Tables::Native, 12).await;
}

/// Proves A10, B7, C9 and pitfall 32.
#[tokio::test(flavor = "multi_thread")]
async fn readers_of_a_log_may_die_with_batches_in_flight() {
    if left_out() {
        return;
    }
    let world = survives_kills_in_flight(LOG, 6).await;
    assert!(world.unwritten() > 0, "those that died had delivered something");
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
/// awaited.
///
/// Proves C5.
#[tokio::test(flavor = "multi_thread")]
async fn failures_are_set_aside_and_what_was_not_attempted_is_not_skipped() {
    if left_out() {
        return;
    }
    sets_failures_aside(Tables::Native).await;
}

/// Proves C5.
#[tokio::test(flavor = "multi_thread")]
async fn failures_of_a_log_are_set_aside_and_what_was_not_attempted_is_not_skipped() {
    if left_out() {
        return;
    }
    sets_failures_aside(LOG).await;
}
