//! Messages that take more than one statement, on connections that are in no transaction and in one of the caller's own.

use posthaste_core::{Message, OutboxOptions};
use sqlx::Executor;

use crate::fixture::{Log, numbered};

/// One more than a statement appends.
const COUNT: usize = 10_001;

const ROWS: &str = "select count(*) from log";

/// A log that refuses the last of these messages.
async fn refusing() -> (Log, Vec<Message>) {
    let log = Log::fresh().await;
    log.run("alter table log add constraint not_this_one check (topic <> 'refused')")
        .await;
    let mut messages = numbered(0..COUNT);
    messages[COUNT - 1].topic = "refused".into();
    (log, messages)
}

#[tokio::test]
async fn on_a_bare_connection_all_of_very_many_are_appended_or_none() {
    let (log, refused) = refusing().await;
    let outbox = log.store.outbox(OutboxOptions::default());
    let mut conn = log.pool.acquire().await.unwrap();
    let error = outbox.enqueue_all(&mut conn, refused).await.unwrap_err().to_string();
    assert!(error.contains("not_this_one"), "{error}");
    assert_eq!(log.count(ROWS).await, 0);
    let written = outbox.enqueue_all(&mut conn, numbered(0..COUNT)).await.unwrap();
    assert_eq!((written.len(), log.count(ROWS).await), (COUNT, 10_001));
}

/// The first statement of another transaction would end it.
#[tokio::test]
async fn a_transaction_that_sqlx_does_not_know_of_is_the_callers_to_end() {
    let (log, refused) = refusing().await;
    let outbox = log.store.outbox(OutboxOptions::default());
    let mut conn = log.pool.acquire().await.unwrap();
    for (end, expected) in [("rollback", 0), ("commit", 10_001)] {
        conn.execute("begin").await.unwrap();
        outbox.enqueue_all(&mut conn, numbered(0..COUNT)).await.unwrap();
        assert_eq!(log.count(ROWS).await, 0, "nothing is committed");
        conn.execute(end).await.unwrap();
        assert_eq!(log.count(ROWS).await, expected);
    }
    conn.execute("begin").await.unwrap();
    outbox.enqueue_all(&mut conn, refused).await.unwrap_err();
    conn.execute("commit").await.unwrap();
    assert_eq!(log.count(ROWS).await, 10_001, "the server has ended it");
}

#[cfg(feature = "tokio-postgres")]
#[tokio::test]
async fn a_tokio_postgres_client_appends_all_or_none_too() {
    let (log, refused) = refusing().await;
    let outbox = log.store.outbox(OutboxOptions::default());
    let url = crate::support::server_url();
    let (mut client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    outbox.enqueue_all(&mut client, refused).await.unwrap_err();
    assert_eq!(log.count(ROWS).await, 0);
    outbox.enqueue_all(&mut client, numbered(0..COUNT)).await.unwrap();
    assert_eq!(log.count(ROWS).await, 10_001);
    client.batch_execute("begin").await.unwrap();
    outbox.enqueue_all(&mut client, numbered(0..COUNT)).await.unwrap();
    client.batch_execute("rollback").await.unwrap();
    assert_eq!(
        log.count(ROWS).await,
        10_001,
        "the caller's own transaction is not committed"
    );
}
