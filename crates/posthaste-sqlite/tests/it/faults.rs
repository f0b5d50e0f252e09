//! What an operator is told when the database does not play along.

use std::time::Duration;

use posthaste_core::store::{ProducerStore, PurgeRequest, RelayStore, StoreErrorKind};
use posthaste_core::{EnqueueError, Enqueued, Message, OutboxOptions, StoreError};
use posthaste_sqlite::SqliteStore;
use sqlx::Executor;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};

use crate::support;

async fn open(options: SqliteConnectOptions) -> SqliteStore {
    let pool = SqlitePoolOptions::new().max_connections(1).connect_with(options).await;
    SqliteStore::new(pool.expect("the file can be opened"))
}

fn says(error: &StoreError, kind: StoreErrorKind, remedy: &str) {
    assert_eq!(error.kind, kind, "{error}");
    assert!(error.to_string().contains(remedy), "{error}");
}

fn store_error(result: Result<Vec<Enqueued>, EnqueueError>) -> StoreError {
    match result {
        Err(EnqueueError::Store(error)) => error,
        other => panic!("no error of the store: {other:?}"),
    }
}

async fn enqueue(store: &SqliteStore) -> StoreError {
    let messages = vec![Message::new("t", "x")];
    store_error(store.enqueue_and_commit(&OutboxOptions::default(), messages).await)
}

#[tokio::test]
async fn without_tables_the_remedy_is_to_migrate() {
    let (pool, _directory) = support::pool(1).await;
    let store = SqliteStore::new(pool);
    let remedy = "run `posthaste migrate up`";
    says(&store.check().await.unwrap_err(), StoreErrorKind::SchemaMissing, remedy);
    says(&enqueue(&store).await, StoreErrorKind::SchemaMissing, remedy);
}

#[tokio::test]
async fn a_missing_column_is_a_missing_migration() {
    let store = support::store(1).await;
    let rename = "alter table posthaste_outbox rename column content_hash to something_else";
    store.pool().execute(rename).await.unwrap();
    says(
        &enqueue(&store).await,
        StoreErrorKind::SchemaMissing,
        "run `posthaste migrate up`",
    );
}

#[tokio::test]
async fn a_file_that_cannot_be_written_says_so() {
    let fresh = support::store(1).await;
    let store = open(support::options(&fresh.directory).read_only(true)).await;
    store.check().await.expect("it can be read");
    let remedy = "make the file and its directory writable";
    says(&enqueue(&store).await, StoreErrorKind::ReadOnly, remedy);
    says(
        &store
            .purge(&PurgeRequest::older_than(Duration::ZERO, 1))
            .await
            .unwrap_err(),
        StoreErrorKind::ReadOnly,
        remedy,
    );
}

#[tokio::test]
async fn a_file_that_is_no_database_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notes.txt");
    std::fs::write(&path, "not a database, but longer than a header would be. ".repeat(100)).unwrap();
    let error = SqliteStore::connect(&path).await.unwrap_err();
    says(&error, StoreErrorKind::Other, "not a SQLite database");
    assert!(error.to_string().contains("notes.txt"), "{error}");
}

#[tokio::test]
async fn a_path_that_leads_nowhere_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let error = SqliteStore::connect(directory.path().join("missing/outbox.db"))
        .await
        .unwrap_err();
    says(&error, StoreErrorKind::Access, "its directory must exist");
    assert!(error.to_string().contains("missing/outbox.db"), "{error}");
}

#[tokio::test]
async fn a_writer_that_does_not_end_is_contention() {
    let fresh = support::store(1).await;
    let impatient = support::options(&fresh.directory).busy_timeout(Duration::from_millis(1));
    let store = open(impatient).await;
    let mut tx = fresh.pool().begin_with("BEGIN IMMEDIATE").await.unwrap();
    let outbox = fresh.outbox(OutboxOptions::default());
    outbox.enqueue(&mut tx, Message::new("t", "x")).await.unwrap();

    let error = enqueue(&store).await;
    says(&error, StoreErrorKind::Contention, "another connection is writing");
    assert!(error.kind.is_transient());
    store.check().await.expect("readers do not wait for a writer");
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn a_full_disk_says_so() {
    let store = support::store(1).await;
    store.pool().execute("pragma max_page_count = 1").await.unwrap(); // as many as there are
    let messages = (0..1_000).map(|_| Message::new("t", vec![0; 1_000])).collect();
    let error = store_error(store.enqueue_and_commit(&OutboxOptions::default(), messages).await);
    says(&error, StoreErrorKind::Unavailable, "make room");
}

#[test]
fn an_exhausted_pool_says_so() {
    let error = posthaste_sqlite::store_error(sqlx::Error::PoolTimedOut);
    says(
        &error,
        StoreErrorKind::PoolExhausted,
        "raise the pool's max_connections",
    );
}
