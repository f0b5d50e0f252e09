//! The SQL itself: every statement is accepted by the server.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use posthaste_core::OutboxOptions;
use posthaste_core::store::SchemaStore;
use posthaste_postgres::PostgresStore;
use sqlx::{AssertSqlSafe, Executor, SqlSafeStr};

#[tokio::test]
async fn every_statement_is_prepared_by_the_server() {
    let store = support::store(1).await;
    for (name, sql) in store.statements() {
        let prepared = store.pool().prepare(AssertSqlSafe(sql.clone()).into_sql_str()).await;
        prepared.unwrap_or_else(|error| panic!("{name}: {error}\n{sql}"));
    }
}

/// Two processes that start at the same moment must not trip over each other.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_migrations_apply_each_step_once() {
    let pool = support::pool(10).await;
    let schema = support::fresh_schema();
    let tasks = (0..10).map(|_| {
        let store = PostgresStore::in_schema(pool.clone(), &schema).unwrap();
        tokio::spawn(async move { store.migrate().await.unwrap().len() })
    });
    let applied: usize = futures::future::try_join_all(tasks).await.unwrap().into_iter().sum();
    let store = PostgresStore::in_schema(pool, &schema).unwrap();
    assert_eq!(applied, store.migrations().len());
    assert_eq!(store.applied().await.unwrap(), [1, 2, 3, 4, 5]);
    assert!(store.migrate().await.unwrap().is_empty(), "a second run does nothing");
}

#[tokio::test]
async fn a_schema_with_an_unusual_name_works() {
    let pool = support::pool(2).await;
    let schema = format!("Wei\"rd '; drop table x; -- {}", &support::fresh_schema()[..8]);
    let store = PostgresStore::in_schema(pool.clone(), &schema).unwrap();
    store.migrate().await.unwrap();
    let mut tx = pool.begin().await.unwrap();
    let message = posthaste_core::Message::new("t", "x").dedupe_key("k");
    store
        .outbox(OutboxOptions::default())
        .enqueue(&mut tx, message)
        .await
        .unwrap();
    tx.commit().await.unwrap();
}
