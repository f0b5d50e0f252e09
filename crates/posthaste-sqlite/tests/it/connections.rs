//! The connections on which the store works: the application's own, a pool of one, files and memory.

use std::time::Duration;

use futures::FutureExt;
use posthaste_core::lifecycle::{LeaseToken, Settlement};
use posthaste_core::store::{
    ClaimRequest, ExtendRequest, KeyOrdering, PurgeRequest, RelayStore, SchemaStore, Scope, WorkerId,
};
use posthaste_core::{Enqueued, Handled, Inbox, Message, OutboxOptions};
use posthaste_sqlite::{SqliteOutbox, SqliteStore};
use sqlx::sqlite::SqliteConnection;
use sqlx::{Connection, Executor};

use crate::support;

fn request() -> ClaimRequest {
    ClaimRequest {
        worker: WorkerId::new(),
        token: LeaseToken::new(),
        limit: 10,
        max_bytes: 1 << 20,
        scan_limit: None,
        lease: Duration::from_secs(30),
        max_attempts: 5,
        ordering: KeyOrdering::None,
        scope: Scope::default(),
        left_out: Vec::new(),
        pipelined: false,
    }
}

fn outbox(store: &SqliteStore) -> SqliteOutbox {
    store.outbox(OutboxOptions::default())
}

fn deduped(key: &str) -> Message {
    Message::new("t", "x").dedupe_key(key)
}

async fn pending(store: &SqliteStore) -> u64 {
    store.stats("default").await.unwrap().pending
}

/// Proves pitfall 14.
#[tokio::test]
async fn a_pool_of_one_is_enough() {
    let store = support::store(1).await;
    let mut tx = store.pool().begin().await.unwrap();
    outbox(&store)
        .enqueue_all(&mut tx, [deduped("a"), deduped("b")])
        .await
        .unwrap();
    outbox(&store).commit(tx).await.unwrap();

    let request = request();
    let claim = store.claim(&request).await.unwrap();
    assert_eq!(claim.messages.len(), 2);
    let ids: Vec<_> = claim.messages.iter().map(|claimed| claimed.message.id).collect();
    assert_eq!(
        store
            .extend(ExtendRequest::new(request.token, &ids, request.lease))
            .await
            .unwrap()
            .held,
        ids
    );
    let delivered: Vec<_> = ids.iter().map(|id| Settlement::delivered(*id, request.token)).collect();
    assert_eq!(store.settle(&delivered).await.unwrap().lost, []);
    store.sweep(&Scope::default(), 5).await.unwrap();
    store
        .purge(&PurgeRequest::older_than(Duration::ZERO, 10))
        .await
        .unwrap();
    store.check().await.unwrap();
    assert!(store.migrate().await.unwrap().is_empty());
}

/// Proves B2.
#[tokio::test]
async fn every_connection_of_an_application_enqueues() {
    let store = support::store(2).await;
    let outbox = outbox(&store);
    let (plain, keyed) = (|| Message::new("t", "x"), deduped);

    let mut conn = store.pool().acquire().await.unwrap();
    assert!(outbox.enqueue(&mut conn, plain()).await.unwrap().is_new());
    assert!(outbox.enqueue(&mut conn, keyed("pool")).await.unwrap().is_new());
    let mut conn: SqliteConnection = conn.detach();
    assert!(outbox.enqueue(&mut conn, keyed("connection")).await.unwrap().is_new());
    assert_eq!(pending(&store).await, 3, "without a transaction each call is one");

    let mut tx = conn.begin().await.unwrap();
    assert!(outbox.enqueue(&mut tx, keyed("transaction")).await.unwrap().is_new());
    tx.rollback().await.unwrap();
    assert_eq!(pending(&store).await, 3);
}

/// Proves B2, B4.
#[tokio::test]
async fn a_transaction_that_sqlx_does_not_know_of_enqueues_too() {
    let store = support::store(2).await;
    let outbox = outbox(&store);
    let mut conn = store.pool().acquire().await.unwrap();
    for (end, expected) in [("rollback", 0), ("commit", 1)] {
        conn.execute("begin immediate").await.unwrap();
        let first = outbox.enqueue(&mut conn, deduped("k")).await.unwrap();
        assert!(first.is_new());
        let again = outbox.enqueue(&mut conn, deduped("k")).await.unwrap();
        assert_eq!(again, Enqueued::Duplicate(first.id()));
        conn.execute(end).await.unwrap();
        assert_eq!(pending(&store).await, expected);
    }
}

/// Proves B2.
#[tokio::test]
async fn a_failing_enqueue_is_undone_and_the_transaction_goes_on() {
    let store = support::store(1).await;
    let fail = "create trigger fail before insert on posthaste_outbox_dedupe
        begin select raise(abort, 'no keys today'); end";
    store.pool().execute(fail).await.unwrap();
    let mut tx = store.pool().begin_with("BEGIN IMMEDIATE").await.unwrap();
    let error = outbox(&store).enqueue(&mut tx, deduped("k")).await.unwrap_err();
    assert!(error.to_string().contains("no keys today"), "{error}");
    outbox(&store).enqueue(&mut tx, Message::new("t", "y")).await.unwrap();
    tx.commit().await.unwrap();
    let claim = store.claim(&request()).await.unwrap();
    let payloads: Vec<_> = claim
        .messages
        .iter()
        .map(|claimed| &claimed.message.payload[..])
        .collect();
    assert_eq!(payloads, [b"y"], "of the failed call nothing is left");
}

/// Proves pitfall 20.
#[tokio::test]
async fn a_handled_delivery_and_its_effect_are_one() {
    let store = support::store(1).await;
    store.pool().execute("create table sales (n integer)").await.unwrap();
    let inbox = store.inbox("statistics");
    for (commit, expected) in [
        (false, Handled::Applied(())),
        (true, Handled::Applied(())),
        (true, Handled::Duplicate),
    ] {
        let mut tx = store.pool().begin_with("BEGIN IMMEDIATE").await.unwrap();
        let count_sale = async |tx: &mut SqliteConnection| tx.execute("insert into sales values (1)").await.map(drop);
        assert_eq!(inbox.once(&mut tx, "order-42", count_sale).await.unwrap(), expected);
        if commit {
            tx.commit().await.unwrap();
        }
    }
    let sales: i64 = sqlx::query_scalar("select count(*) from sales")
        .fetch_one(store.pool())
        .await
        .unwrap();
    assert_eq!(sales, 1);
}

/// An idle relay must not stand in the way of producers.
#[tokio::test]
async fn a_claim_of_nothing_does_not_wait_for_a_writer() {
    let store = support::store(2).await;
    let mut tx = store.pool().begin_with("BEGIN IMMEDIATE").await.unwrap();
    outbox(&store).enqueue(&mut tx, Message::new("t", "x")).await.unwrap();
    assert!(store.claim(&request()).await.unwrap().messages.is_empty());
    tx.commit().await.unwrap();
    assert_eq!(store.claim(&request()).await.unwrap().messages.len(), 1);
}

#[tokio::test]
async fn commits_of_others_wake_and_silence_does_not() {
    let store = support::store(1).await;
    let mut wake = store.listener().await.expect("a file can be watched");
    wake.wait().await; // for what came before it watched
    assert!(
        tokio::time::timeout(Duration::from_millis(250), wake.wait())
            .await
            .is_err()
    );

    let mut conn = store.pool().acquire().await.unwrap();
    outbox(&store).enqueue(&mut conn, Message::new("t", "x")).await.unwrap();
    drop(conn);
    tokio::time::timeout(Duration::from_secs(10), wake.wait())
        .await
        .expect("the commit is noticed");

    assert_eq!(store.claim(&request()).await.unwrap().messages.len(), 1);
    wake.wait().await; // the claim's own commit
    assert!(store.claim(&request()).await.unwrap().messages.is_empty());
    let again = tokio::time::timeout(Duration::from_millis(250), wake.wait()).await;
    assert!(again.is_err(), "a claim of nothing writes nothing, so it wakes nobody");
}

#[tokio::test]
async fn a_database_in_memory_works_on_its_one_connection() {
    let store = SqliteStore::connect(":memory:").await.unwrap();
    store.migrate().await.unwrap();
    let mut conn = store.pool().acquire().await.unwrap();
    outbox(&store).enqueue(&mut conn, Message::new("t", "x")).await.unwrap();
    drop(conn);
    assert_eq!(store.claim(&request()).await.unwrap().messages.len(), 1);
    assert!(
        store.listener().now_or_never().unwrap().is_none(),
        "there is no file to watch"
    );
}

#[tokio::test]
async fn a_file_is_opened_durable_and_with_a_write_ahead_log() {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::connect(directory.path().join("outbox.db")).await.unwrap();
    let journal: String = sqlx::query_scalar("pragma journal_mode")
        .fetch_one(store.pool())
        .await
        .unwrap();
    let synchronous: i64 = sqlx::query_scalar("pragma synchronous")
        .fetch_one(store.pool())
        .await
        .unwrap();
    let busy_timeout: i64 = sqlx::query_scalar("pragma busy_timeout")
        .fetch_one(store.pool())
        .await
        .unwrap();
    assert_eq!((journal.as_str(), synchronous, busy_timeout), ("wal", 2, 5_000));
}

/// Business rows are written through the same pool.
#[tokio::test]
async fn foreign_keys_are_enforced_on_connections_that_the_store_opens() {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::connect(directory.path().join("shop.db")).await.unwrap();
    let tables = "create table orders (id integer primary key);
        create table lines (order_id integer references orders (id))";
    store.pool().execute(tables).await.unwrap();
    let orphan = store.pool().execute("insert into lines values (1)").await;
    assert!(orphan.unwrap_err().to_string().contains("FOREIGN KEY"));
}

/// A row that may not die, though its attempts are used up, holds up nobody else.
#[tokio::test]
async fn a_refused_death_stops_no_claim() {
    let store = support::store(1).await;
    let outbox = store.outbox(OutboxOptions::default());
    let mut conn = store.pool().acquire().await.unwrap();
    for payload in ["1", "2"] {
        outbox.enqueue(&mut conn, Message::new("t", payload)).await.unwrap();
    }
    drop(conn);
    for sql in [
        "update posthaste_outbox set status = 'processing', attempts = 100, lease_token = 'x', locked_until = 1
         where payload = x'31'",
        "create trigger no before update on posthaste_outbox when new.status = 'dead'
         begin select raise(abort, 'nobody dies'); end",
    ] {
        store.pool().execute(sql).await.unwrap();
    }
    let claim = store.claim(&request()).await.unwrap();
    assert_eq!((claim.messages.len(), claim.died.len()), (1, 0));
    assert_eq!(claim.messages[0].message.payload, "2");
    store.pool().execute("drop trigger no").await.unwrap();
    assert_eq!(store.claim(&request()).await.unwrap().died.len(), 1);
}

/// As a long transaction of another process does.
///
/// Proves pitfall 6.
#[tokio::test]
async fn whoever_writes_for_long_makes_verdicts_busy_and_loses_none() {
    let directory = tempfile::tempdir().unwrap();
    let options = support::options(&directory).busy_timeout(Duration::from_millis(50));
    let store = SqliteStore::new(sqlx::SqlitePool::connect_with(options.clone()).await.unwrap());
    store.migrate().await.unwrap();
    let mut conn = store.pool().acquire().await.unwrap();
    outbox(&store)
        .enqueue_all(&mut conn, [deduped("a"), deduped("b")])
        .await
        .unwrap();
    drop(conn);
    let request = request();
    let claim = store.claim(&request).await.unwrap();
    let ids: Vec<_> = claim.messages.iter().map(|claimed| claimed.message.id).collect();
    let verdicts: Vec<_> = ids.iter().map(|id| Settlement::delivered(*id, request.token)).collect();

    let mut other = SqliteConnection::connect_with(&options).await.unwrap();
    other.execute("begin immediate").await.unwrap();
    let settled = store.settle(&verdicts).await.unwrap();
    let busy: Vec<_> = settled.busy.iter().map(|row| row.id).collect();
    assert_eq!((busy, settled.lost), (ids.clone(), vec![]));
    let extended = store
        .extend(ExtendRequest::new(request.token, &ids, request.lease))
        .await
        .unwrap();
    assert_eq!((extended.busy, extended.held), (ids.clone(), vec![]));

    other.execute("rollback").await.unwrap();
    assert_eq!(
        store
            .extend(ExtendRequest::new(request.token, &ids, request.lease))
            .await
            .unwrap()
            .held,
        ids
    );
    let settled = store.settle(&verdicts).await.unwrap();
    assert!(settled.busy.is_empty() && settled.lost.is_empty(), "{settled:?}");
}
