//! A logistics service's outbox: rows stay locked while they are published.

use std::time::Duration;

use posthaste_core::RelayStore;
use posthaste_relay::{Relay, RelayConfig};
use posthaste_testkit::{FaultyPublisher, RecordingPublisher};
use tokio_util::sync::CancellationToken;

use super::place::{Place, claim, eventually, request};

/// What the application writes itself.
async fn shipments(place: &Place, count: u32) {
    place
        .run(&format!(
            "insert into outbox_events (id, aggregate_type, aggregate_id, event_type, payload)
             select gen_random_uuid(), 'Shipment', gen_random_uuid(), 'Moved', jsonb_build_object('n', n)
             from generate_series(1, {count}) n"
        ))
        .await;
}

const FREE: &str =
    "select count(*)::text from (select from outbox_events where status = 'PENDING' for update skip locked) f";

/// Proves E1, E2, E4.
#[tokio::test(flavor = "multi_thread")]
async fn rows_are_locked_while_they_are_published_and_settled_with_the_lock() {
    let place = Place::builtin("logistics", 3).await;
    shipments(&place, 60).await;
    let config = place.policy();
    assert_eq!(
        (config.batch_size, config.poll_interval),
        (50, Duration::from_millis(200))
    );
    let broker = FaultyPublisher::new(RecordingPublisher::new());
    broker.hang();
    let shutdown = CancellationToken::new();
    let relay = Relay::new(place.store.clone(), broker.clone()).config(config);
    let relay = tokio::spawn(relay.run_until(shutdown.clone()));
    broker.wait_until_hanging(1).await;
    assert_eq!(
        place.text(FREE).await,
        "10",
        "fifty are locked, and as they were for all others"
    );
    broker.release();
    let published = "select count(*)::text from outbox_events where status = 'PUBLISHED' and processed_at is not null
        and retry_count = 0";
    eventually("all to be published", async || place.text(published).await == "60").await;
    shutdown.cancel();
    relay.await.unwrap().unwrap();
    assert_eq!(broker.inner().ids().len(), 60);
    place.dispose().await;
}

/// Proves E4, E5.
#[tokio::test(flavor = "multi_thread")]
async fn a_failure_waits_two_to_the_retries_and_the_sixth_is_the_last() {
    let place = Place::builtin("logistics", 2).await;
    shipments(&place, 1).await;
    let broker = FaultyPublisher::new(RecordingPublisher::new());
    broker.down();
    let row = "select status || ' ' || retry_count from outbox_events";
    let wait = "select round(extract(epoch from next_attempt_at - now()))::text from outbox_events";
    for retries in 1..=5_u32 {
        Relay::new(place.store.clone(), broker.clone())
            .config(place.policy())
            .drain()
            .await
            .unwrap();
        assert_eq!(place.text(row).await, format!("PENDING {retries}"));
        let waits: u64 = place.text(wait).await.parse().unwrap();
        let expected = 1 << (retries - 1);
        assert!(
            waits == expected || waits + 1 == expected,
            "{waits} s after {retries} failures"
        );
        place.run("update outbox_events set next_attempt_at = now()").await;
    }
    assert_eq!(place.store.stats("").await.unwrap().dead, 0);
    Relay::new(place.store.clone(), broker.clone())
        .config(place.policy())
        .drain()
        .await
        .unwrap();
    assert_eq!(place.text(row).await, "FAILED 5");
    assert!(!place.text("select last_error from outbox_events").await.is_empty());
    assert_eq!(place.store.stats("").await.unwrap().dead, 1, "the metric counts it");
    place.dispose().await;
}

/// A relay as a process of its own, for the test below. It claims and never answers.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "started by another test, which kills it"]
async fn worker() {
    let Ok(schema) = std::env::var("POSTHASTE_TEST_WORKER_SCHEMA") else {
        return;
    };
    let builtin = posthaste_sql::table::BuiltinMap::find("logistics").unwrap();
    let options: sqlx::postgres::PgConnectOptions = crate::support::server_url().parse().unwrap();
    let pool = sqlx::postgres::PgPoolOptions::new()
        .connect_with(options.options([("search_path", &schema)]))
        .await
        .unwrap();
    let store = posthaste_postgres::PostgresStore::with_map(pool, builtin.map().unwrap()).unwrap();
    let broker = FaultyPublisher::new(RecordingPublisher::new());
    broker.hang();
    let config = RelayConfig {
        lease: Duration::from_mins(10),
        ..RelayConfig::with_policy(builtin.map().unwrap().policy()).unwrap()
    };
    drop(
        Relay::new(store, broker)
            .config(config)
            .run_until(CancellationToken::new())
            .await,
    );
}

/// Proves E6.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_killed_frees_its_rows_at_once() {
    let place = Place::builtin("logistics", 2).await;
    shipments(&place, 5).await;
    let mut worker = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "maps::logistics::worker"])
        .env("POSTHASTE_TEST_WORKER_SCHEMA", &place.schema)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    eventually("the worker to lock them", async || place.text(FREE).await == "0").await;
    assert!(claim(&place.store, &request(10)).await.messages.is_empty());
    worker.kill().unwrap();
    worker.wait().unwrap();
    let mut freed = 0;
    eventually("the rows to be free, long before the lease is over", async || {
        freed = claim(&place.store, &request(10)).await.messages.len();
        freed > 0
    })
    .await;
    assert_eq!(freed, 5);
    place.dispose().await;
}
