//! The SQL itself: every statement is accepted by SQLite.

use std::time::Duration;

use futures::future::try_join_all;
use posthaste_core::store::{AdminStore, Filter, PurgeRequest, RelayStore, SchemaStore};
use posthaste_core::{Message, OutboxOptions};
use posthaste_sqlite::SqliteStore;
use sqlx::{AssertSqlSafe, Executor, SqlSafeStr};

use crate::support;

#[tokio::test]
async fn every_statement_is_prepared_by_the_database() {
    let store = support::store(1).await;
    for (name, sql) in store.statements() {
        let prepared = store.pool().prepare(AssertSqlSafe(sql.clone()).into_sql_str()).await;
        prepared.unwrap_or_else(|error| panic!("{name}: {error}\n{sql}"));
    }
}

/// Two processes that start at the same moment must not trip over each other.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_migrations_apply_each_step_once() {
    let (pool, _directory) = support::pool(10).await;
    let tasks = (0..10).map(|_| {
        let store = SqliteStore::new(pool.clone());
        tokio::spawn(async move { store.migrate().await.unwrap().len() })
    });
    let applied: usize = try_join_all(tasks).await.unwrap().into_iter().sum();
    let store = SqliteStore::new(pool);
    assert_eq!(applied, store.migrations().len());
    assert_eq!(store.applied().await.unwrap(), [1, 2]);
    assert!(store.migrate().await.unwrap().is_empty(), "a second run does nothing");
}

#[tokio::test]
async fn nothing_is_applied_before_the_first_migration() {
    let (pool, _directory) = support::pool(1).await;
    assert!(SqliteStore::new(pool).applied().await.unwrap().is_empty());
}

/// Indexes share one space of names in SQLite, so they must follow the prefix too.
#[tokio::test]
async fn prefixes_of_any_kind_live_side_by_side() {
    let (pool, _directory) = support::pool(2).await;
    for prefix in ["posthaste_", "other_", "Wei\"rd '; drop table x; -- "] {
        let store = SqliteStore::with_prefix(pool.clone(), prefix).unwrap();
        store.migrate().await.unwrap();
        let mut tx = pool.begin().await.unwrap();
        let outbox = store.outbox(OutboxOptions::default());
        let message = Message::new("t", "x").dedupe_key("k");
        assert!(outbox.enqueue(&mut tx, message).await.unwrap().is_new(), "{prefix}");
        tx.commit().await.unwrap();
        assert_eq!(store.stats("default").await.unwrap().pending, 1, "{prefix}");
    }
}

/// Any language can enqueue with a plain insert.
#[tokio::test]
async fn a_plain_insert_is_a_message() {
    let store = support::store(1).await;
    let insert = r#"insert into posthaste_outbox (topic, ordering_key, payload) values ('t', 'k', '{"a":1}')"#;
    store.pool().execute(insert).await.unwrap();
    let rows = store.list(&Filter::default(), None, 10).await.unwrap();
    let message = &rows[0].message;
    assert_eq!(message.payload, r#"{"a":1}"#);
    assert_eq!(message.content_type, "application/json");
    assert_eq!(message.id.uuid().unwrap().get_version_num(), 4);
    assert_eq!(rows[0].next_attempt_at, rows[0].created_at, "due at once");
    assert_eq!(store.stats("default").await.unwrap().pending, 1);
}

/// Retention goes on where it can.
#[tokio::test]
async fn expired_dedupe_keys_are_removed_though_a_delivered_row_may_not_be() {
    let store = support::store(2).await;
    let sql = "insert into posthaste_outbox (topic, payload, status, delivered_at) values ('t', 'x', 'delivered', 0);
         insert into posthaste_outbox_dedupe values ('default', 't', 'k', 'gone', 0);
         create trigger kept before delete on posthaste_outbox begin select raise(abort, 'the law wants it'); end";
    store.pool().execute(sqlx::raw_sql(sql)).await.unwrap();
    store
        .purge(&PurgeRequest::older_than(Duration::ZERO, 100))
        .await
        .expect_err("the row is kept");
    let left: i64 = sqlx::query_scalar("select count(*) from posthaste_outbox_dedupe")
        .fetch_one(store.pool())
        .await
        .unwrap();
    assert_eq!(left, 0);
}
