//! A key with a large backlog: claims get through it in time that grows with its rows, and not with their square, and
//! reach what lies behind it.

use std::time::{Duration, Instant};

use posthaste_core::RelayStore;
use posthaste_core::lifecycle::LeaseToken;
use posthaste_core::store::{Claim, ClaimRequest, DeadHead, KeyOrdering, Scope, WorkerId};
use posthaste_mysql::MySqlStore;
use posthaste_relay::{Relay, RelayConfig};
use posthaste_testkit::RecordingPublisher;
use tokio_util::sync::CancellationToken;

use crate::support;

/// Writes fresh rows; `key` is an expression for that of the n-th.
async fn fill(store: &MySqlStore, count: u32, key: &str) {
    let sql = format!(
        "insert into posthaste_outbox (id, namespace, topic, ordering_key, content_type, payload, headers, status, attempts,
            next_attempt_at, created_at, updated_at)
         with recursive n as (select 1 as n union all select n + 1 from n where n < {count})
         select uuid(), 'default', 'orders', {key}, 'text/plain', repeat('x', 100), '{{}}', 'pending', 0,
            utc_timestamp(6), utc_timestamp(6), utc_timestamp(6)
         from n;"
    );
    support::run(store.pool(), support::DEEP_RECURSION.to_owned() + &sql).await;
}

fn request(limit: u32, scan_limit: Option<u32>) -> ClaimRequest {
    ClaimRequest {
        worker: WorkerId::new(),
        token: LeaseToken::new(),
        limit,
        max_bytes: 1 << 30,
        scan_limit,
        lease: Duration::from_mins(5),
        max_attempts: 10,
        ordering: KeyOrdering::PerKey {
            dead_head: DeadHead::Skip,
            except: Vec::new(),
        },
        scope: Scope::default(),
        left_out: Vec::new(),
        pipelined: false,
    }
}

fn keys(claim: &Claim) -> Vec<&str> {
    let keys = claim
        .messages
        .iter()
        .map(|claimed| claimed.message.ordering_key.as_deref());
    keys.map(Option::unwrap_or_default).collect()
}

/// Proves pitfall 18.
#[tokio::test]
async fn what_lies_behind_a_key_in_flight_is_found() {
    let store = support::store(2).await;
    fill(&store, 20_000, "'hot'").await;
    fill(&store, 100, "concat('k', n)").await;
    let first = store.claim(&request(100, None)).await.unwrap();
    assert_eq!(keys(&first), ["hot"; 100]);

    // As far as it takes, but no further than is allowed.
    let near = store.claim(&request(100, Some(1_000))).await.unwrap();
    assert_eq!(keys(&near), [""; 0]);
    let far = store.claim(&request(200, None)).await.unwrap();
    let behind: Vec<_> = (1..=100).map(|n| format!("k{n}")).collect();
    assert_eq!(keys(&far), behind);
    assert_eq!(keys(&store.claim(&request(200, None)).await.unwrap()), [""; 0]);
    support::drop_database(store.pool()).await;
}

/// A head that waits holds back its own key alone.
#[tokio::test]
async fn what_lies_behind_a_head_that_waits_is_found() {
    let store = support::store(2).await;
    fill(&store, 10_000, "'hot'").await;
    support::run(
        store.pool(),
        "update posthaste_outbox set attempts = 1, next_attempt_at = utc_timestamp(6) + interval 1 hour order by seq limit 1",
    )
    .await;
    fill(&store, 10_000, "'warm'").await;
    fill(&store, 3, "null").await;
    let claim = store.claim(&request(100, None)).await.unwrap();
    assert_eq!(keys(&claim), ["warm"; 100]);
    let claim = store.claim(&request(100, None)).await.unwrap();
    assert_eq!(keys(&claim), [""; 3], "both are passed over");
    support::drop_database(store.pool()).await;
}

/// A look that saw all it may see ends, also where there is no key that the next one could pass over.
#[tokio::test]
async fn rows_without_a_key_that_wait_are_looked_at_once() {
    let store = support::store(2).await;
    fill(&store, 4_100, "null").await;
    support::run(
        store.pool(),
        "update posthaste_outbox set next_attempt_at = utc_timestamp(6) + interval 1 day",
    )
    .await;
    for scan_limit in [Some(4_000), None] {
        let claim = tokio::time::timeout(Duration::from_secs(30), store.claim(&request(100, scan_limit))).await;
        assert_eq!(keys(&claim.expect("it ends").unwrap()), [""; 0]);
    }
    support::drop_database(store.pool()).await;
}

/// What a crashed worker left is taken back, however many rows wait before it.
#[tokio::test]
async fn what_a_vanished_worker_left_behind_a_backlog_is_taken_back() {
    let store = support::store(2).await;
    fill(&store, 1_200, "'hot'").await;
    support::run(
        store.pool(),
        "update posthaste_outbox set attempts = 1, next_attempt_at = utc_timestamp(6) + interval 1 hour",
    )
    .await;
    fill(&store, 2, "'left'").await;
    let claim = store.claim(&request(1, None)).await.unwrap();
    assert_eq!(keys(&claim), ["left"]);
    support::run(
        store.pool(),
        "update posthaste_outbox set locked_until = utc_timestamp(6) - interval 1 hour where status = 'processing'",
    )
    .await;
    let claim = store.claim(&request(10, None)).await.unwrap();
    assert!(claim.reclaimed);
    assert_eq!(keys(&claim), ["left"]);
    support::drop_database(store.pool()).await;
}

/// How long it takes until all is delivered.
async fn drained(key: &str) -> Duration {
    let store = support::store(8).await;
    fill(&store, ROWS, key).await;
    let broker = RecordingPublisher::new();
    let relay = Relay::new(store.clone(), broker.clone()).config(RelayConfig::default());
    let started = Instant::now();
    let report = tokio::time::timeout(Duration::from_mins(5), relay.drain());
    let report = report.await.expect("it is not stuck").unwrap();
    assert_eq!(report.delivered, u64::from(ROWS));
    let took = started.elapsed();
    support::drop_database(store.pool()).await;
    took
}

const ROWS: u32 = 8_000;

/// Proves pitfall 18.
#[tokio::test]
async fn one_key_drains_about_as_fast_as_many() {
    // Whatever else the machine does, it does to all of them: the best ratio of a few counts.
    let mut ratios = Vec::new();
    for _ in 0..3 {
        let distinct = drained("concat('k', n)").await;
        let one = drained("'hot'").await;
        let none = drained("null").await;
        let ratio = one.max(none).as_secs_f64() / distinct.as_secs_f64();
        println!("distinct keys {distinct:?}, one key {one:?}, no keys {none:?}");
        ratios.push(ratio);
        if ratio < 3.0 {
            return;
        }
    }
    panic!("one key, or none, takes so many times as long: {ratios:?}");
}

/// How long a relay with small batches that runs on takes until all is delivered.
async fn delivered_in_small_batches(key: &str) -> Duration {
    let store = support::store(8).await;
    fill(&store, ROWS, key).await;
    let broker = RecordingPublisher::new();
    let config = RelayConfig {
        batch_size: 50,
        poll_interval: Duration::from_millis(10),
        ..RelayConfig::default()
    };
    let shutdown = CancellationToken::new();
    let relay = Relay::new(store.clone(), broker.clone()).config(config);
    let started = Instant::now();
    let running = tokio::spawn(relay.run_until(shutdown.clone()));
    while broker.deliveries().len() < ROWS as usize {
        assert!(started.elapsed() < Duration::from_mins(5), "it is stuck");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let took = started.elapsed();
    shutdown.cancel();
    running.await.unwrap().unwrap();
    support::drop_database(store.pool()).await;
    took
}

/// With all keys in flight there is nothing to find, and to see that takes a look at the whole backlog.
#[tokio::test]
async fn few_keys_drain_about_as_fast_as_many_in_small_batches() {
    let mut ratios = Vec::new();
    for _ in 0..3 {
        let distinct = delivered_in_small_batches("concat('k', n)").await;
        let few = delivered_in_small_batches("concat('k', n % 10)").await;
        println!("distinct keys {distinct:?}, ten keys {few:?}");
        ratios.push(few.as_secs_f64() / distinct.as_secs_f64());
        if ratios.iter().any(|ratio| *ratio < 3.0) {
            return;
        }
    }
    panic!("ten keys take so many times as long: {ratios:?}");
}

/// Proves pitfall 18.
#[tokio::test]
async fn others_do_not_wait_for_a_key_with_a_large_backlog() {
    let store = support::store(8).await;
    fill(&store, 100_000, "'hot'").await;
    fill(&store, 100, "concat('k', n)").await;
    let broker = RecordingPublisher::new();
    let shutdown = CancellationToken::new();
    let relay = Relay::new(store.clone(), broker.clone()).config(RelayConfig::default());
    let started = Instant::now();
    let running = tokio::spawn(relay.run_until(shutdown.clone()));
    let others = || {
        let deliveries = broker.deliveries();
        let is_other = |key: &Option<String>| key.as_deref() != Some("hot");
        let keys = deliveries.iter().map(|delivery| &delivery.message.ordering_key);
        (keys.filter(|key| is_other(key)).count(), deliveries.len())
    };
    loop {
        let (seen, all) = others();
        if seen == 100 {
            println!("others after {:?}, and {} of the key", started.elapsed(), all - seen);
            assert!(all < 50_000, "they had to wait for {} rows of the key", all - seen);
            break;
        }
        assert!(started.elapsed() < Duration::from_mins(1), "{seen} of 100 others");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    shutdown.cancel();
    running.await.unwrap().unwrap();
    support::drop_database(store.pool()).await;
}
