//! What has brought outboxes to a halt elsewhere.

use std::time::{Duration, Instant};

use posthaste_core::lifecycle::{LeaseToken, Settlement};
use posthaste_core::store::{ClaimRequest, KeyOrdering, Scope, WorkerId};
use posthaste_core::{Message, OutboxOptions, RelayStore};
use posthaste_postgres::PostgresStore;
use posthaste_relay::{Relay, RelayConfig};
use posthaste_testkit::RecordingPublisher;
use sqlx::{AssertSqlSafe, Executor};
use tokio_util::sync::CancellationToken;

use crate::support;

const BATCH: u32 = 1_000;
const BATCHES: usize = 16;

fn schema(store: &PostgresStore) -> String {
    store.channel().replace("posthaste:", "")
}

async fn run(store: &PostgresStore, sql: String) {
    store.pool().execute(sqlx::raw_sql(AssertSqlSafe(sql))).await.unwrap();
}

async fn number(store: &PostgresStore, sql: String) -> i64 {
    sqlx::query_scalar(AssertSqlSafe(sql))
        .fetch_one(store.pool())
        .await
        .unwrap()
}

async fn enqueue_many(store: &PostgresStore) {
    let schema = schema(store);
    let rows = BATCHES * BATCH as usize;
    run(
        store,
        format!(
            "insert into {schema}.outbox (id, namespace, topic, payload, status, attempts, created_at, next_attempt_at)
             select gen_random_uuid(), 'default', 'orders', convert_to(repeat('x', 300), 'UTF8'), 'pending', 0, now(), now()
             from generate_series(1, {rows})"
        ),
    )
    .await;
}

/// Claims and settles a batch; says how long that took.
async fn deliver_batch(store: &PostgresStore) -> Duration {
    let (start, token) = (Instant::now(), LeaseToken::new());
    let request = ClaimRequest {
        worker: WorkerId::new(),
        token,
        limit: BATCH,
        max_bytes: u64::from(u32::MAX),
        scan_limit: None,
        lease: Duration::from_mins(1),
        max_attempts: 5,
        ordering: KeyOrdering::None,
        scope: Scope::default(),
        left_out: Vec::new(),
        pipelined: false,
    };
    let claimed = store.claim(&request).await.unwrap();
    assert_eq!(claimed.messages.len(), BATCH as usize);
    let delivered = claimed
        .messages
        .iter()
        .map(|claimed| Settlement::delivered(claimed.message.id, token));
    let settled = store.settle(&delivered.collect::<Vec<_>>()).await.unwrap();
    assert_eq!(settled.lost, []);
    start.elapsed()
}

/// Each message leaves versions of its row behind, and while somebody holds a snapshot none of them can be removed. The last
/// batches, which find 12,000 of them in their way, are not slower than the first by more than the noise of a busy machine; and a
/// message leaves two versions behind, not more.
///
/// Proves pitfall 15.
#[tokio::test(flavor = "multi_thread")]
async fn versions_of_rows_that_cannot_be_removed_do_not_slow_down_what_follows() {
    let store = support::store(4).await;
    let outbox = format!("{}.outbox", schema(&store));
    enqueue_many(&store).await;
    let size = || number(&store, format!("select pg_relation_size('{outbox}')"));
    let fresh = size().await;
    let mut holder = store.pool().begin().await.unwrap();
    for sql in [
        "set transaction isolation level repeatable read".to_owned(),
        format!("select count(*) from {outbox}"),
    ] {
        holder.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await.unwrap();
    }
    let mut took = Vec::new();
    for _ in 0..BATCHES {
        took.push(deliver_batch(&store).await);
    }
    // The best of several: others use the machine, too.
    let best = |times: &[Duration]| *times.iter().min().unwrap();
    let (first, last) = (best(&took[..BATCHES / 4]), best(&took[BATCHES * 3 / 4..]));
    assert!(last < first * 3, "{last:?} after {first:?}: {took:?}");

    // The claim and the outcome, and no version beyond those.
    let full = size().await;
    assert!(full <= fresh * 3, "{full} bytes after {fresh}");
    holder.rollback().await.unwrap();
}

/// A key that refers to another table would have its rows locked by every message about them.
///
/// Proves pitfall 30.
#[tokio::test(flavor = "multi_thread")]
async fn a_business_row_that_is_locked_stops_neither_producers_nor_the_relay() {
    let store = support::store(4).await;
    let schema = schema(&store);
    let keys = format!(
        "select count(*) from pg_constraint c join pg_namespace n on n.oid = c.connamespace
         where c.contype = 'f' and n.nspname = '{schema}'"
    );
    assert_eq!(number(&store, keys).await, 0, "no table refers to another");
    run(
        &store,
        format!("create table {schema}.orders (id bigint primary key); insert into {schema}.orders values (42)"),
    )
    .await;
    let mut locking = store.pool().begin().await.unwrap();
    let lock = format!("select * from {schema}.orders for update; update {schema}.orders set id = 42");
    locking.execute(sqlx::raw_sql(AssertSqlSafe(lock))).await.unwrap();

    let produce_and_deliver = async {
        let mut tx = store.pool().begin().await.unwrap();
        let message = Message::new("orders", "{}").aggregate("Order", "42").key("42");
        store
            .outbox(OutboxOptions::default())
            .enqueue(&mut tx, message)
            .await
            .unwrap();
        tx.commit().await.unwrap();
        let broker = RecordingPublisher::new();
        Relay::new(store.clone(), broker.clone()).drain().await.unwrap();
        broker.ids().len()
    };
    let delivered = tokio::time::timeout(Duration::from_secs(20), produce_and_deliver).await;
    assert_eq!(delivered.expect("nobody waits for the lock"), 1);
    locking.rollback().await.unwrap();
}

/// A slot that nobody reads keeps the server's log until the disk is full. The relay polls and listens, and makes none.
///
/// Proves pitfall 34.
#[tokio::test(flavor = "multi_thread")]
async fn a_relay_makes_no_replication_slot() {
    let store = support::store(4).await;
    let slots = async || number(&store, "select count(*) from pg_replication_slots".to_owned()).await;
    let (broker, shutdown) = (RecordingPublisher::new(), CancellationToken::new());
    let config = RelayConfig {
        janitor_interval: Duration::from_millis(50),
        ..RelayConfig::default()
    };
    let relay = Relay::new(store.clone(), broker.clone()).config(config);
    let relay = tokio::spawn(relay.run_until(shutdown.clone()));
    for n in 1..=3 {
        let mut tx = store.pool().begin().await.unwrap();
        let outbox = store.outbox(OutboxOptions::default());
        outbox.enqueue(&mut tx, Message::new("orders", "{}")).await.unwrap();
        tx.commit().await.unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        while broker.ids().len() < n {
            assert!(Instant::now() < deadline, "waited in vain for message {n}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(slots().await, 0, "while it runs");
    }
    shutdown.cancel();
    relay.await.unwrap().unwrap();
    assert_eq!(slots().await, 0, "and after it");
}
