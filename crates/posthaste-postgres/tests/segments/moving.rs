//! Moving an outbox from the queue to the log, with producers at work.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use posthaste_core::lifecycle::Settlement;
use posthaste_core::store::{ClaimRequest, RelayStore, SchemaStore};
use posthaste_core::{Enqueued, Message, Outbox, OutboxOptions};
use posthaste_postgres::{MoveStep, PostgresStore};
use sqlx::Row;
use tokio::task::JoinSet;

use crate::Log;
use crate::support::log::request;
use crate::support::{fresh_schema, pool};

const KEYS: usize = 12;
const BACKLOG: usize = 100;
/// The move begins then.
const HALF_WRITTEN: i64 = 600;

/// A queue, and the log beside it.
async fn queue_and_log(connections: u32) -> (PostgresStore, Log) {
    let schema = fresh_schema();
    let queue = PostgresStore::in_schema(pool(connections).await, &schema).unwrap();
    queue.migrate().await.unwrap();
    let outbox = queue.outbox(OutboxOptions::default());
    // It was in use.
    let mut tx = outbox.begin().await.unwrap();
    outbox.enqueue(&mut tx, message("first", 0)).await.unwrap();
    outbox.commit(tx).await.unwrap();
    let log = Log::in_schema(queue.pool().clone(), schema).await;
    (queue, log)
}

fn message(key: &str, number: usize) -> Message {
    Message::new("t", number.to_string()).key(key)
}

/// A producer that counts for a key of its own, a transaction for each number, as old ones do: by the library, by the SQL
/// function, or by an insert that wants to know what it wrote.
async fn produce(queue: PostgresStore, schema: String, key: usize, stop: Arc<AtomicBool>) -> usize {
    let outbox = queue.outbox(OutboxOptions::default());
    let name = format!("k{key}");
    let mut number = 0;
    while number < BACKLOG || !stop.load(Ordering::Relaxed) {
        match key % 3 {
            0 => {
                let mut tx = outbox.begin().await.unwrap();
                outbox.enqueue(&mut tx, message(&name, number)).await.unwrap();
                outbox.commit(tx).await.unwrap();
            }
            1 => {
                let sql = format!("select id from \"{schema}\".enqueue('t', $1, $2)");
                let query = sqlx::query(sqlx::AssertSqlSafe(sql))
                    .bind(number.to_string())
                    .bind(&name);
                query.fetch_one(queue.pool()).await.unwrap();
            }
            _ => {
                let sql = format!(
                    "insert into \"{schema}\".outbox (id, namespace, topic, ordering_key, payload)
                     values (gen_random_uuid(), 'default', 't', $2, convert_to($1, 'UTF8')) returning id, seq"
                );
                let query = sqlx::query(sqlx::AssertSqlSafe(sql))
                    .bind(number.to_string())
                    .bind(&name);
                let row = query.fetch_one(queue.pool()).await.unwrap();
                assert!(row.get::<i64, _>("seq") > 0);
            }
        }
        number += 1;
    }
    number
}

/// The numbers of each key, in the order in which the log gives them out.
async fn consumed(log: &Log) -> BTreeMap<String, Vec<usize>> {
    let rows = log
        .rows(
            "select ordering_key, convert_from(payload, 'UTF8') from {schema}.outbox_log
             where ordering_key like 'k%' order by shard, seq",
        )
        .await;
    let mut numbers: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for row in &rows {
        let number = row.get::<String, _>(1).parse().unwrap();
        numbers.entry(row.get(0)).or_default().push(number);
    }
    numbers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_beside_producers_loses_nothing_and_keeps_the_order_of_each_key() {
    let (queue, log) = queue_and_log(16).await;
    log.tables.raise_shards(4).await.unwrap();
    let stop = Arc::new(AtomicBool::default());
    let mut producers = JoinSet::new();
    for key in 0..KEYS {
        let producing = produce(queue.clone(), log.schema.clone(), key, Arc::clone(&stop));
        producers.spawn(async move { (format!("k{key}"), producing.await) });
    }
    while log.count("select count(*) from {schema}.outbox").await < HALF_WRITTEN {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // Some are dead, and some wait for another try.
    log.run(
        "update {schema}.outbox set status = 'dead', attempts = 5, last_error = 'refused' where seq % 97 = 3;
         update {schema}.outbox set attempts = 2, next_attempt_at = now() + interval '1 h'
         where seq % 89 = 5 and status = 'pending'",
    )
    .await;
    let queue_move = log.tables.queue_move();
    assert!(!queue_move.plan().await.unwrap().is_fenced);
    while queue_move.fence().await.unwrap() == MoveStep::Busy {}
    queue_move.move_batch(200).await.unwrap();
    queue_move.move_batch(200).await.unwrap();
    // Cut short, and gone on with by another process.
    let again = Log::in_schema(queue.pool().clone(), log.schema.clone()).await;
    let queue_move = again.tables.queue_move();
    assert!(queue_move.plan().await.unwrap().is_fenced);
    for _ in 0..3 {
        queue_move.move_batch(200).await.unwrap();
    }
    while queue_move.redirect().await.unwrap() == MoveStep::Busy {}
    let plan = queue_move.plan().await.unwrap();
    assert!(plan.is_redirected);
    assert_eq!(plan.messages(), 0, "{plan:?}");
    // Producers that know nothing of it go on.
    tokio::time::sleep(Duration::from_millis(500)).await;
    stop.store(true, Ordering::Relaxed);
    let mut written = BTreeMap::new();
    while let Some(done) = producers.join_next().await {
        let (key, count) = done.unwrap();
        written.insert(key, (0..count).collect::<Vec<_>>());
    }
    assert_eq!(queue_move.plan().await.unwrap().messages(), 0);
    assert_eq!(
        queue_move.redirect().await.unwrap(),
        MoveStep::Done(0),
        "and once more changes nothing"
    );
    assert_eq!(consumed(&log).await, written);
    let shown = |state| format!("select count(*) from {{schema}}.outbox_log where state = '{state}' and attempts > 0");
    assert!(log.count(&shown("dead")).await > 3);
    assert!(log.count(&shown("waiting")).await > 3);
}

#[tokio::test]
async fn relays_of_the_queue_claim_nothing_more_and_settle_what_they_have() {
    let (queue, log) = queue_and_log(6).await;
    let outbox = queue.outbox(OutboxOptions::default());
    for number in 0..10 {
        let mut tx = outbox.begin().await.unwrap();
        outbox
            .enqueue(&mut tx, message(&format!("k{number}"), number))
            .await
            .unwrap();
        outbox.commit(tx).await.unwrap();
    }
    let claim = |lease| ClaimRequest { lease, ..request(2) };
    let holds = claim(Duration::from_mins(1));
    let held = queue.claim(&holds).await.unwrap();
    let lost = queue.claim(&claim(Duration::from_millis(1))).await.unwrap();
    assert_eq!((held.messages.len(), lost.messages.len()), (2, 2));
    let queue_move = log.tables.queue_move();
    assert_eq!(queue_move.fence().await.unwrap(), MoveStep::Done(()));
    let refused = queue.claim(&claim(Duration::from_mins(1))).await;
    assert!(refused.is_err() || refused.unwrap().messages.is_empty());
    // Those whose lease ran out are moved, those that are held are not.
    let moved = queue_move.move_batch(100).await.unwrap();
    assert_eq!(moved, 9);
    assert_eq!(queue_move.plan().await.unwrap().leased, 2);
    let settlements: Vec<_> = held
        .messages
        .iter()
        .map(|row| Settlement::delivered(row.message.id, holds.token))
        .collect();
    let settled = queue.settle(&settlements).await.unwrap();
    assert!(settled.lost.is_empty());
    assert_eq!(queue_move.plan().await.unwrap().messages(), 0);
}

#[tokio::test]
async fn dedupe_keys_and_ids_stay_taken_over_the_move() {
    let (queue, log) = queue_and_log(6).await;
    let outbox = queue.outbox(OutboxOptions::default());
    let known = message("k", 1).dedupe_key("once");
    let mut tx = outbox.begin().await.unwrap();
    outbox.enqueue(&mut tx, known.clone()).await.unwrap();
    outbox.commit(tx).await.unwrap();
    let queue_move = log.tables.queue_move();
    queue_move.fence().await.unwrap();
    queue_move.redirect().await.unwrap();
    let mut tx = outbox.begin().await.unwrap();
    let again = outbox
        .enqueue(&mut tx, message("k", 2).dedupe_key("once"))
        .await
        .unwrap();
    assert!(matches!(again, Enqueued::Duplicate(_)), "{again:?}");
    let new = message("k", 3);
    outbox.enqueue(&mut tx, new.clone()).await.unwrap();
    let again = outbox.enqueue(&mut tx, new).await.unwrap();
    assert!(matches!(again, Enqueued::Duplicate(_)), "{again:?}");
    outbox.commit(tx).await.unwrap();
    assert_eq!(
        log.count("select count(*) from {schema}.log where ordering_key = 'k'")
            .await,
        2
    );
}
