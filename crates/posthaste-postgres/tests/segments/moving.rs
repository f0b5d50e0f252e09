//! Moving an outbox from the queue to the log, with producers at work.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use posthaste_core::lifecycle::Settlement;
use posthaste_core::store::{ClaimRequest, RelayStore, SchemaStore};
use posthaste_core::{Enqueued, Message, Outbox, OutboxOptions};
use posthaste_postgres::{MoveProgress, MoveStep, PostgresStore};
use posthaste_servers::PostgresServer;
use sqlx::Row;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tokio::task::JoinSet;

use crate::Log;
use crate::support::log::request;
use crate::support::{fresh_schema, pool, server_url};

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

/// Writes a row as any language might.
async fn insert(log: &Log, topic: &str, key: &str) -> sqlx::Result<()> {
    let sql = log.sql(
        "insert into {schema}.outbox (id, namespace, topic, ordering_key, payload)
         values (gen_random_uuid(), 'default', $1, $2, 'p')",
    );
    let inserted = sqlx::query(sql).bind(topic).bind(key).execute(log.pool());
    inserted.await.map(drop)
}

#[tokio::test]
async fn what_the_log_does_not_take_is_named_and_nothing_is_fenced() {
    let (queue, log) = queue_and_log(4).await;
    let (long_key, long_topic) = ("k".repeat(3_000), "t".repeat(513));
    insert(&log, "t", &long_key).await.unwrap();
    insert(&log, &long_topic, "k").await.unwrap();
    insert(&log, &"t".repeat(512), &"k".repeat(2_048)).await.unwrap();
    let queue_move = log.tables.queue_move();
    let unfit = queue_move.unfit().await.unwrap();
    assert_eq!(unfit.count, 2, "{unfit}");
    for refused in [queue_move.refuse_unfit().await, queue_move.fence().await.map(|_| ())] {
        let error = refused.unwrap_err().to_string();
        let first: String = log
            .rows("select id::text from {schema}.outbox where octet_length(ordering_key) > 2048")
            .await[0]
            .get(0);
        assert!(
            error.contains(&format!("{first} (ordering_key has 3000 bytes and may have 2048)")),
            "{error}"
        );
        assert!(error.contains("(topic has 513 bytes and may have 512)"), "{error}");
        assert!(error.contains("shorten that field"), "{error}");
    }
    assert_eq!(queue_move.progress().await.unwrap(), MoveProgress::NotBegun);
    insert(&log, "t", &long_key)
        .await
        .expect("nothing was changed for producers");
    let claimed = queue.claim(&request(10)).await.unwrap();
    assert_eq!(claimed.messages.len(), 5, "and relays of the queue claim");
}

/// A row that came after the look would stop the move half way.
#[tokio::test]
async fn once_a_move_has_begun_nothing_is_written_that_the_log_does_not_take() {
    let (_queue, log) = queue_and_log(4).await;
    let queue_move = log.tables.queue_move();
    queue_move.fence().await.unwrap();
    let refuse = async |when: &str| {
        for (topic, key) in [("t".repeat(513), "k".to_owned()), ("t".to_owned(), "k".repeat(2_049))] {
            let error = insert(&log, &topic, &key).await.unwrap_err().to_string();
            assert!(error.contains("bytes and may have"), "{when}: {error}");
        }
        insert(&log, &"t".repeat(512), &"k".repeat(2_048)).await.unwrap();
    };
    refuse("while messages are moved").await;
    queue_move.move_batch(100).await.unwrap();
    queue_move.redirect().await.unwrap();
    refuse("when they were").await;
    assert_eq!(log.count("select count(*) from {schema}.log").await, 3);
}

#[tokio::test]
async fn a_move_that_was_begun_is_taken_back_as_long_as_nothing_was_moved() {
    let (queue, log) = queue_and_log(4).await;
    let queue_move = log.tables.queue_move();
    assert_eq!(queue_move.unfence().await.unwrap(), MoveStep::Done(false));
    queue_move.fence().await.unwrap();
    assert_eq!(queue_move.unfence().await.unwrap(), MoveStep::Done(true));
    assert_eq!(queue_move.progress().await.unwrap(), MoveProgress::NotBegun);
    insert(&log, "t", &"k".repeat(2_049)).await.expect("the queue takes it");
    let claimed = queue.claim(&request(10)).await.unwrap();
    assert_eq!(claimed.messages.len(), 2, "relays claim again");
    log.run(
        "delete from {schema}.outbox where octet_length(ordering_key) > 2048; 
         update {schema}.outbox set status = 'pending', locked_by = null, lease_token = null, locked_until = null",
    )
    .await;
    queue_move.fence().await.unwrap();
    assert_eq!(queue_move.move_batch(100).await.unwrap(), 1);
    let error = queue_move.unfence().await.unwrap_err().to_string();
    assert!(error.contains("messages wait in the log"), "{error}");
    queue_move.redirect().await.unwrap();
    let error = queue_move.unfence().await.unwrap_err().to_string();
    assert!(error.contains("was moved to the log"), "{error}");
}

#[tokio::test]
async fn a_second_move_is_told_of_the_first() {
    let (queue, log) = queue_and_log(4).await;
    let queue_move = log.tables.queue_move();
    queue_move.fence().await.unwrap();
    // The first one is in the middle of a batch.
    let mut first = queue.pool().begin().await.unwrap();
    let lock = log.sql("select pg_advisory_xact_lock(hashtextextended('posthaste:move:{schema}', 0))");
    sqlx::query(lock).execute(&mut *first).await.unwrap();
    for refused in [
        queue_move.move_batch(100).await.map(|_| ()),
        queue_move.fence().await.map(|_| ()),
        queue_move.redirect().await.map(|_| ()),
    ] {
        let error = refused.unwrap_err().to_string();
        assert!(error.contains("another `posthaste log move` is at work"), "{error}");
    }
    first.rollback().await.unwrap();
    assert_eq!(queue_move.move_batch(100).await.unwrap(), 1);
}

/// Whatever they do to each other, no message is lost and no deadlock is met.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_moves_at_once_end_well() {
    let (_queue, log) = queue_and_log(8).await;
    log.run(
        "insert into {schema}.outbox (id, namespace, topic, ordering_key, payload)
         select gen_random_uuid(), 'default', 't', (i % 7)::text, 'p' from generate_series(1, 2000) i",
    )
    .await;
    let mut movers = JoinSet::new();
    for _ in 0..2 {
        let tables = log.tables.clone();
        movers.spawn(async move {
            let queue_move = tables.queue_move();
            while queue_move.fence().await? == MoveStep::Busy {}
            while queue_move.move_batch(100).await? > 0 {}
            while queue_move.redirect().await? == MoveStep::Busy {}
            Ok::<_, posthaste_core::StoreError>(())
        });
    }
    let mut through = 0;
    for ended in movers.join_all().await {
        match ended {
            Ok(()) => through += 1,
            Err(error) => assert!(error.to_string().contains("another `posthaste log move`"), "{error}"),
        }
    }
    assert!(through > 0, "one of them went on to its end");
    assert_eq!(log.tables.queue_move().progress().await.unwrap(), MoveProgress::Done);
    assert_eq!(log.count("select count(*) from {schema}.log").await, 2_001);
}

/// A look at every message of a large queue takes minutes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn producers_go_on_while_messages_are_looked_for_that_do_not_fit() {
    let schema = fresh_schema();
    let address: PgConnectOptions = server_url().parse().unwrap();
    // What is called without a schema is found in this one first.
    let address = address
        .application_name(&schema)
        .options([("search_path", format!("{schema},pg_catalog"))]);
    let pool = PgPoolOptions::new()
        .max_connections(4)
        .connect_with(address)
        .await
        .unwrap();
    let queue = PostgresStore::in_schema(pool.clone(), &schema).unwrap();
    queue.migrate().await.unwrap();
    let log = Log::in_schema(pool, schema).await;
    log.run(
        "insert into {schema}.outbox (id, namespace, topic, payload)
         select gen_random_uuid(), 'default', 't', 'x' from generate_series(1, 40);
         create function {schema}.octet_length(value text) returns integer language plpgsql as $$
         begin
             if current_query() like '%as unfit%' then
                 perform pg_sleep(0.05);
             end if;
             return pg_catalog.octet_length(value);
         end $$",
    )
    .await;
    let tables = log.tables.clone();
    let moving = tokio::spawn(async move { tables.queue_move().fence().await.unwrap() });
    let looking = "select count(*) from pg_stat_activity
        where application_name = '{schema}' and state = 'active' and query like '%as unfit%' and pid <> pg_backend_pid()";
    while log.count(looking).await == 0 {
        assert!(!moving.is_finished());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    log.run(
        "begin; set local lock_timeout = '500ms';
         insert into {schema}.outbox (id, namespace, topic, payload) values (gen_random_uuid(), 'default', 't', 'x'); commit",
    )
    .await;
    assert!(!moving.is_finished(), "it was looked for all the while");
    assert_eq!(moving.await.unwrap(), MoveStep::Done(()));
    assert_eq!(log.tables.queue_move().progress().await.unwrap(), MoveProgress::Begun);
}

/// It gives way to whoever waits longer than the server takes to look who is in the way; a step that gives up before finds it at every
/// try.
#[tokio::test]
async fn a_step_of_a_move_makes_an_autovacuum_of_the_queue_give_way() {
    let server = PostgresServer::start(Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    let pool = PgPoolOptions::new()
        .max_connections(4)
        .connect(&server.url())
        .await
        .unwrap();
    let schema = fresh_schema();
    let queue = PostgresStore::in_schema(pool.clone(), &schema).unwrap();
    queue.migrate().await.unwrap();
    let log = Log::in_schema(pool, schema).await;
    for setting in ["autovacuum = on", "autovacuum_naptime = '1s'"] {
        log.run(&format!("alter system set {setting}")).await;
    }
    log.run(
        "insert into {schema}.outbox (id, namespace, topic, payload)
         select gen_random_uuid(), 'default', 't', 'x' from generate_series(1, 20000);
         delete from {schema}.outbox where seq % 2 = 0;
         alter table {schema}.outbox set (autovacuum_enabled = on, autovacuum_vacuum_threshold = 1, autovacuum_vacuum_scale_factor = 0,
             autovacuum_vacuum_cost_delay = 100, autovacuum_vacuum_cost_limit = 1);
         select pg_reload_conf()",
    )
    .await;
    let vacuumed = "select count(*) from pg_locks l join pg_stat_activity a using (pid)
        where a.backend_type = 'autovacuum worker' and l.relation = '{schema}.outbox'::regclass";
    let begun = std::time::Instant::now();
    while log.count(vacuumed).await == 0 {
        assert!(begun.elapsed() < Duration::from_mins(1), "there is no autovacuum");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let queue_move = log.tables.queue_move();
    let named = queue_move.in_the_way(false).await.unwrap();
    assert!(named.iter().any(|name| name.contains("autovacuum")), "{named:?}");
    let mut tries = 1;
    while queue_move.fence().await.unwrap() == MoveStep::Busy {
        tries += 1;
        assert!(tries <= 3, "{:?}", queue_move.in_the_way(false).await.unwrap());
    }
}
