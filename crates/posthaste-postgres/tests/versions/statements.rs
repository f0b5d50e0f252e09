//! The SQL itself: every statement is accepted by the server.

use std::time::Duration;

use posthaste_core::OutboxOptions;
use posthaste_core::store::{PurgeRequest, RelayStore, SchemaStore};
use posthaste_postgres::PostgresStore;
use sqlx::{AssertSqlSafe, Executor, SqlSafeStr};

use crate::support;

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
    assert_eq!(store.applied().await.unwrap(), [1, 2, 3, 4, 5, 6]);
    assert!(store.migrate().await.unwrap().is_empty(), "a second run does nothing");
}

/// A change of the table waits for whoever uses it, and everybody who comes later would wait behind it.
#[tokio::test(flavor = "multi_thread")]
async fn a_migration_that_waits_keeps_no_producer_waiting() {
    let schema = support::fresh_schema();
    let store = PostgresStore::in_schema(support::pool(4).await, &schema).unwrap();
    store.migrate().await.unwrap();
    let message = || posthaste_core::Message::new("t", "x");
    let outbox = store.outbox(OutboxOptions::default());
    for sql in ["drop index outbox_fresh_lane", "drop index outbox_page"] {
        let sql = sql.replace("index ", &format!("index \"{schema}\"."));
        store.pool().execute(AssertSqlSafe(sql)).await.unwrap();
    }
    let older = format!("delete from \"{schema}\".schema_version where version > 3");
    store.pool().execute(AssertSqlSafe(older)).await.unwrap();

    let mut busy = store.pool().begin().await.unwrap();
    outbox.enqueue(&mut busy, message()).await.unwrap();
    let migration = tokio::spawn({
        let store = store.clone();
        async move { store.migrate().await }
    });
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let one = async {
            let mut tx = store.pool().begin().await.unwrap();
            outbox.enqueue(&mut tx, message()).await.unwrap();
            tx.commit().await.unwrap();
        };
        tokio::time::timeout(Duration::from_secs(10), one)
            .await
            .expect("it waits for the migration");
    }
    assert!(!migration.is_finished(), "somebody uses the table");
    busy.commit().await.unwrap();
    assert_eq!(migration.await.unwrap().unwrap().len(), 3);
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

/// Retention goes on where it can.
#[tokio::test]
async fn expired_dedupe_keys_are_removed_though_a_delivered_row_may_not_be() {
    let schema = support::fresh_schema();
    let store = PostgresStore::in_schema(support::pool(2).await, &schema).unwrap();
    store.migrate().await.unwrap();
    let sql = format!(
        "insert into {schema}.outbox (id, namespace, topic, payload, status, delivered_at)
             values (gen_random_uuid(), 'default', 't', 'x', 'delivered', '2020-01-01');
         insert into {schema}.outbox_dedupe values ('default', 't', 'k', gen_random_uuid(), '2020-01-01');
         create function {schema}.kept() returns trigger language plpgsql as $$
             begin raise exception 'the law wants it'; end $$;
         create trigger kept before delete on {schema}.outbox for each row execute function {schema}.kept()"
    );
    store.pool().execute(sqlx::raw_sql(AssertSqlSafe(sql))).await.unwrap();
    store
        .purge(&PurgeRequest::older_than(Duration::ZERO, 100))
        .await
        .expect_err("the row is kept");
    let left: i64 = sqlx::query_scalar(AssertSqlSafe(format!("select count(*) from {schema}.outbox_dedupe")))
        .fetch_one(store.pool())
        .await
        .unwrap();
    assert_eq!(left, 0);
}
