//! From the order to the record in Kafka, on real servers.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use order_service::orders::{self, NewOrder, Placed};
use order_service::{relay, setup};
use posthaste::relay::RelayConfig;
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Headers, Message};
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, Executor, PgPool};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

const TIMEOUT: Duration = Duration::from_secs(90);

/// A database of its own, and the brokers that tests share; `None` where the test runner said that a server is missing.
async fn servers() -> Option<(PgPool, String)> {
    let without = std::env::var("POSTHASTE_TEST_WITHOUT").unwrap_or_default();
    if without
        .split(',')
        .any(|server| server == "postgres" || server == "kafka")
    {
        eprintln!("NOT RUN: this test needs PostgreSQL and Apache Kafka");
        return None;
    }
    let variable = |name| std::env::var(name).expect("the servers of `cargo xtask test`");
    let server: PgConnectOptions = variable("POSTHASTE_TEST_POSTGRES_URL").parse().expect("a URL");
    let name = format!("orders_{}", Uuid::new_v4().simple());
    let admin = PgPool::connect_with(server.clone()).await.expect("the server is up");
    let create = format!("create database {name}");
    admin.execute(AssertSqlSafe(create)).await.expect("a new database");
    let pool = PgPool::connect_with(server.database(&name)).await.expect("it is there");
    setup::database(&pool).await.expect("the tables");
    Some((pool, variable("POSTHASTE_TEST_KAFKA")))
}

async fn count(pool: &PgPool, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(pool).await.expect("a number")
}

/// What was rolled back is in neither table and reaches nobody. What was committed reaches Kafka under the id of its row,
/// with the order's id as key and the payload as it was written.
///
/// Proves A2 and A9.
#[tokio::test(flavor = "multi_thread")]
async fn committed_orders_reach_kafka_and_others_do_not() {
    let Some((pool, kafka)) = servers().await else { return };
    setup::topics(&kafka).await.expect("the topic");
    let mut placed: Vec<Placed> = Vec::new();
    let mut gone: Vec<Placed> = Vec::new();
    for n in 1..=24 {
        let new = NewOrder {
            customer: format!("customer {n}"),
            cents: n,
        };
        let mut tx = pool.begin().await.expect("a transaction");
        let order = orders::place(&mut tx, &new).await.expect("it is written");
        if n % 4 == 0 {
            tx.rollback().await.expect("it is undone");
            gone.push(order);
        } else {
            tx.commit().await.expect("it is committed");
            placed.push(order);
        }
    }
    assert_eq!(count(&pool, "select count(*) from orders").await, 18);
    assert_eq!(count(&pool, "select count(*) from outbox").await, 18);

    let stop = CancellationToken::new();
    let config = RelayConfig {
        poll_interval: Duration::from_millis(200),
        max_poll_interval: Duration::from_millis(200),
        ..relay::config().expect("the map's policy")
    };
    let relay = tokio::spawn({
        let (pool, kafka, stop) = (pool.clone(), kafka.clone(), stop.clone());
        async move { relay::run(pool, &kafka, config, stop).await }
    });
    let ids: Vec<String> = placed.iter().map(|order| order.event.to_string()).collect();
    let found = tokio::task::spawn_blocking(move || read(&kafka, &ids))
        .await
        .expect("Kafka is read");
    for order in &placed {
        let (key, payload) = &found[&order.event.to_string()];
        assert_eq!(*key, order.order.to_string());
        let stored: String = sqlx::query_scalar("select payload from outbox where id = $1")
            .bind(order.event)
            .fetch_one(&pool)
            .await
            .expect("the row is kept");
        assert_eq!(*payload, stored);
    }
    assert!(gone.iter().all(|order| !found.contains_key(&order.event.to_string())));
    let deadline = Instant::now() + TIMEOUT;
    while count(
        &pool,
        "select count(*) from outbox where status = 'SENT' and sent_at is not null",
    )
    .await
        < 18
    {
        assert!(Instant::now() < deadline, "the rows are not marked");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    stop.cancel();
    relay.await.expect("it ends").expect("and well");
}

/// Reads until all these events were seen; answers with key and payload by event id.
fn read(kafka: &str, ids: &[String]) -> BTreeMap<String, (String, String)> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", kafka)
        .set("group.id", Uuid::new_v4().to_string())
        .set("auto.offset.reset", "earliest")
        .create()
        .expect("a consumer");
    consumer.subscribe(&["order-events"]).expect("the topic is there");
    let mut found = BTreeMap::new();
    let deadline = Instant::now() + TIMEOUT;
    while !ids.iter().all(|id| found.contains_key(id)) {
        assert!(Instant::now() < deadline, "events are missing; seen: {}", found.len());
        let Some(Ok(record)) = consumer.poll(Duration::from_millis(200)) else {
            continue;
        };
        let headers = record.headers().expect("every event has some");
        let id = headers
            .iter()
            .find(|header| header.key == "ce_id")
            .and_then(|header| header.value);
        let text = |bytes: Option<&[u8]>| String::from_utf8(bytes.unwrap_or_default().to_vec()).expect("text");
        found.insert(text(id), (text(record.key()), text(record.payload())));
    }
    found
}
