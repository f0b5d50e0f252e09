//! A server that stops answering without closing its connections: stopped, or behind a firewall that drops packets.

use std::str::FromStr;
use std::time::{Duration, Instant};

use posthaste_core::store::{ProducerStore, SchemaStore};
use posthaste_core::{Message, OutboxOptions};
use posthaste_postgres::PostgresStore;
use posthaste_relay::Relay;
use posthaste_testkit::RecordingPublisher;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::support::{self, proxy::Proxy};

async fn enqueue(store: &PostgresStore) {
    let messages = vec![Message::new("orders", "{}")];
    store
        .enqueue_and_commit(&OutboxOptions::default(), messages)
        .await
        .unwrap();
}

/// With the settings that it ships with.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stops_answering_is_said_within_15_s_and_the_relay_goes_on_by_itself() {
    let schema = support::fresh_schema();
    let direct = PostgresStore::in_schema(support::pool(2).await, &schema).unwrap();
    direct.migrate().await.unwrap();
    let options = PgConnectOptions::from_str(&support::server_url()).unwrap();
    let (proxy, options) = Proxy::before(options);
    let pool = PgPoolOptions::new()
        .max_connections(10)
        .connect_with(options)
        .await
        .unwrap();
    let store = PostgresStore::in_schema(pool, &schema).unwrap();

    let (broker, shutdown) = (RecordingPublisher::new(), CancellationToken::new());
    let relay = Relay::new(store, broker.clone());
    let health = relay.health();
    let relay = tokio::spawn(relay.run_until(shutdown.clone()));
    enqueue(&direct).await;
    timeout(Duration::from_secs(10), broker.wait_for(1)).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(health.problem(), None);

    proxy.freeze(true);
    let frozen = Instant::now();
    while health.is_healthy() {
        assert!(frozen.elapsed() < Duration::from_secs(15), "nothing was said");
        sleep(Duration::from_millis(50)).await;
    }
    let problem = health.problem().unwrap();
    let said = ["gave no answer", "has not answered"];
    assert!(said.iter().any(|said| problem.contains(said)), "{problem}");

    proxy.freeze(false);
    enqueue(&direct).await;
    timeout(Duration::from_mins(1), broker.wait_for(2))
        .await
        .expect("it goes on by itself");
    let thawed = Instant::now();
    while let Some(problem) = health.problem() {
        assert!(thawed.elapsed() < Duration::from_mins(1), "{problem}");
        sleep(Duration::from_millis(50)).await;
    }
    shutdown.cancel();
    relay.await.unwrap().unwrap();
}
