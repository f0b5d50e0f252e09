//! A move of the queue that is taken back while it, or another one, is under way.

use std::time::Duration;

use posthaste_core::lifecycle::LeaseToken;
use posthaste_core::{Message, Outbox, OutboxOptions, RelayStore};
use posthaste_postgres::{MoveProgress, MoveStep, PostgresStore};
use sqlx::AssertSqlSafe;

use crate::fixture::{Log, request};
use crate::support;

/// A queue with two messages of one key and one of another, and the log beside it.
async fn queue_and_log() -> (PostgresStore, Log) {
    let schema = support::fresh_schema();
    let log = Log::in_schema(&schema).await;
    let queue = PostgresStore::in_schema(log.pool.clone(), &schema).unwrap();
    let outbox = queue.outbox(OutboxOptions::default());
    let mut tx = outbox.begin().await.unwrap();
    for (key, payload) in [("a", "1"), ("a", "2"), ("b", "3")] {
        let message = Message::new("orders", payload).key(key);
        outbox.enqueue(&mut tx, message).await.unwrap();
    }
    outbox.commit(tx).await.unwrap();
    (queue, log)
}

const IN_LOG: &str = "select count(*) from log";
const IN_QUEUE: &str = "select count(*) from outbox where status in ('pending', 'processing')";

#[tokio::test]
async fn a_move_that_was_taken_back_moves_nothing_more() {
    let (queue, log) = queue_and_log().await;
    let queue_move = log.store.tables().unwrap().queue_move();
    queue_move.fence().await.unwrap();
    assert_eq!(queue_move.unfence().await.unwrap(), MoveStep::Done(true));
    for refused in [
        queue_move.move_batch(1).await.map(drop),
        queue_move.redirect().await.map(drop),
    ] {
        let error = refused.unwrap_err().to_string();
        assert!(
            error.contains("the move was taken back meanwhile; nothing more was moved"),
            "{error}"
        );
        assert!(error.contains("run `posthaste log move` again"), "{error}");
    }
    for by_hand in ["select log_move_batch(1)", "select log_redirect_queue()"] {
        let error = sqlx::query(by_hand).execute(&log.pool).await.unwrap_err();
        assert!(error.to_string().contains("was taken back"), "{error}");
    }
    assert_eq!((log.count(IN_LOG).await, log.count(IN_QUEUE).await), (0, 3));
    assert_eq!(queue_move.progress().await.unwrap(), MoveProgress::NotBegun);
    let claimed = queue.claim(&request(LeaseToken::new(), 10)).await.unwrap();
    assert_eq!(claimed.messages.len(), 3);
}

/// Whoever takes it back by hand has no lock that a move asks for, and would not see what is being moved.
#[tokio::test]
async fn a_batch_that_is_being_moved_is_waited_for_by_whoever_takes_the_move_back() {
    let (_queue, log) = queue_and_log().await;
    log.run("select log_fence_queue()").await;
    let mut batch = log.pool.begin().await.unwrap();
    sqlx::query("select log_move_batch(1)")
        .execute(&mut *batch)
        .await
        .unwrap();
    let pool = log.pool.clone();
    let taken_back = tokio::spawn(async move { sqlx::query("select log_unfence_queue()").execute(&pool).await });
    let waits = "select count(*) from pg_locks where relation = 'outbox'::regclass and mode = 'AccessExclusiveLock' and not granted";
    while log.count(waits).await == 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    batch.commit().await.unwrap();
    let error = taken_back.await.unwrap().unwrap_err();
    assert!(error.to_string().contains("messages wait in the log"), "{error}");
    let queue_move = log.store.tables().unwrap().queue_move();
    assert_eq!(queue_move.progress().await.unwrap(), MoveProgress::Begun);
}

/// One that was halted all the while does not know that it relies on the fence of another, which still waits for leases.
#[tokio::test]
async fn one_that_was_begun_anew_is_not_overtaken_by_the_first() {
    let (queue, log) = queue_and_log().await;
    let first = log.store.tables().unwrap().queue_move();
    first.fence().await.unwrap();
    first.unfence().await.unwrap();
    let claimed = queue.claim(&request(LeaseToken::new(), 1)).await.unwrap();
    assert_eq!(claimed.messages.len(), 1);
    let second = log.store.tables().unwrap().queue_move();
    second.fence().await.unwrap();

    assert_eq!(first.move_batch(10).await.unwrap(), 1, "of the other key");
    assert_eq!(log.count("select count(*) from log where ordering_key = 'b'").await, 1);
    let error = first.redirect().await.unwrap_err().to_string();
    assert!(error.contains("has claimed messages meanwhile"), "{error}");
    assert_eq!(second.progress().await.unwrap(), MoveProgress::Begun);
    assert_eq!((log.count(IN_LOG).await, log.count(IN_QUEUE).await), (1, 2));

    log.run("update outbox set locked_until = now() - interval '1 s' where status = 'processing'")
        .await;
    assert_eq!(second.redirect().await.unwrap(), MoveStep::Done(2));
}

/// A snapshot that is older than the lock would show neither the fence nor what producers have written until then.
#[tokio::test]
async fn nothing_is_moved_by_an_old_snapshot() {
    let (_queue, log) = queue_and_log().await;
    log.run("select log_fence_queue()").await;
    for step in ["log_move_batch(1)", "log_redirect_queue()", "log_unfence_queue()"] {
        let mut tx = log.pool.begin().await.unwrap();
        let old = "set transaction isolation level repeatable read";
        sqlx::query(old).execute(&mut *tx).await.unwrap();
        let sql = AssertSqlSafe(format!("select {step}"));
        let refused = sqlx::query(sql).execute(&mut *tx).await;
        let error = refused.unwrap_err().to_string();
        assert!(error.contains("read committed only"), "{step}: {error}");
    }
    assert_eq!(log.count(IN_LOG).await, 0);
}

/// Of those that use the queue only some keep a step waiting, and each is named with what ends it.
#[tokio::test]
async fn what_keeps_a_move_waiting_is_named() {
    let (_queue, log) = queue_and_log().await;
    let queue_move = log.store.tables().unwrap().queue_move();
    let mut reader = log.pool.begin().await.unwrap();
    sqlx::query("select count(*) from outbox")
        .execute(&mut *reader)
        .await
        .unwrap();
    let pid: i32 = sqlx::query_scalar("select pg_backend_pid()")
        .fetch_one(&mut *reader)
        .await
        .unwrap();
    let gid = support::fresh_schema();
    log.run(&format!(
        "begin; update outbox set tenant = 'x'; prepare transaction '{gid}'"
    ))
    .await;
    assert_eq!(queue_move.fence().await.unwrap(), MoveStep::Busy);
    let writers = queue_move.in_the_way(false).await.unwrap();
    let all = queue_move.in_the_way(true).await.unwrap();
    log.run(&format!("rollback prepared '{gid}'")).await;
    assert_eq!(writers.len(), 1, "{writers:?}");
    assert!(
        writers[0].starts_with(&format!("the prepared transaction '{gid}' (of ")),
        "{writers:?}"
    );
    assert!(
        writers[0].contains(&format!("`rollback prepared '{gid}'` ends")),
        "{writers:?}"
    );
    assert_eq!(all.len(), 2, "{all:?}");
    let named = all
        .iter()
        .find(|name| name.starts_with(&format!("process {pid} (")))
        .unwrap();
    assert!(named.contains("idle in transaction, for "), "{named}");
    assert!(
        named.contains(&format!("`select pg_terminate_backend({pid})` ends")),
        "{named}"
    );

    assert_eq!(
        queue_move.fence().await.unwrap(),
        MoveStep::Done(()),
        "a reader is in no way"
    );
    assert_eq!(queue_move.unfence().await.unwrap(), MoveStep::Busy);
    reader.rollback().await.unwrap();
    assert_eq!(queue_move.unfence().await.unwrap(), MoveStep::Done(true));
    assert_eq!(queue_move.in_the_way(true).await.unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn the_process_of_another_move_is_named() {
    let (_queue, log) = queue_and_log().await;
    let queue_move = log.store.tables().unwrap().queue_move();
    let schema: String = sqlx::query_scalar("select current_schema()")
        .fetch_one(&log.pool)
        .await
        .unwrap();
    let mut other = log.pool.begin().await.unwrap();
    let lock = "select pg_backend_pid() from pg_advisory_xact_lock(hashtextextended('posthaste:move:' || $1, 0))";
    let pid: i32 = sqlx::query_scalar(lock)
        .bind(schema)
        .fetch_one(&mut *other)
        .await
        .unwrap();
    let error = queue_move.move_batch(1).await.unwrap_err().to_string();
    assert!(
        error.contains(&format!("is at work on this queue: process {pid} (")),
        "{error}"
    );
}
