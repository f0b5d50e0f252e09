//! Every statement of the log is one that the server takes.

use posthaste_core::store::SchemaStore;
use posthaste_postgres::PostgresLogStore;
use posthaste_sql::TableMap;
use sqlx::{AssertSqlSafe, Executor};

use crate::support;

#[tokio::test]
async fn every_statement_can_be_prepared() {
    let schema = support::fresh_schema();
    let pool = support::pool(1).await;
    let store = PostgresLogStore::new(pool.clone(), TableMap::native_log(&schema).unwrap()).unwrap();
    store.migrate().await.unwrap();
    let statements = store.statements();
    assert!(statements.len() > 20, "{}", statements.len());
    for (name, text) in statements {
        // COPY cannot be prepared; tests copy rows.
        if name == "copy" {
            continue;
        }
        let name = name.replace('/', "_");
        let prepared = pool
            .execute(AssertSqlSafe(format!("prepare posthaste_{name} as {text}")))
            .await;
        assert!(prepared.is_ok(), "{name}: {prepared:?}\n{text}");
    }
}

/// A fresh database takes one history, and a queue that becomes a log another; both end the same.
#[tokio::test]
async fn migrations_are_applied_once_also_by_many_at_a_time() {
    let schema = support::fresh_schema();
    let pool = support::pool(8).await;
    let store = PostgresLogStore::new(pool, TableMap::native_log(&schema).unwrap()).unwrap();
    let tasks: Vec<_> = (0..6)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move { store.migrate().await.unwrap().len() })
        })
        .collect();
    let mut steps = 0;
    for task in tasks {
        steps += task.await.unwrap();
    }
    assert_eq!(steps, store.migrations().len());
    let applied = store.applied().await.unwrap();
    assert!(applied.contains(&1) && applied.contains(&1001), "{applied:?}");
}
