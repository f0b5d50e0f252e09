//! The SQL itself: every statement is accepted by the server.

use std::time::Duration;

use posthaste_core::OutboxOptions;
use posthaste_core::store::{
    LeadRequest, LeaderRole, Leadership, PurgeRequest, RelayRegistry, RelayStore, SchemaStore, StoreErrorKind, WorkerId,
};
use posthaste_mysql::MySqlStore;
use posthaste_sql::table::BuiltinMap;
use sqlx::{AssertSqlSafe, Executor, SqlSafeStr};

use crate::support;

/// A statement as the server takes it: its parameters are nameless, and what is compared with a row is one.
fn nameless(sql: &str) -> String {
    let sql = sql.replace("dedupe_key) in ($1)", "dedupe_key) in (($1, $1, $1))");
    let sql = ["$10", "$15"].iter().fold(sql, |sql, lanes| {
        let row = format!("ordering_key) not in (({lanes}, {lanes}))");
        sql.replace(&format!("ordering_key) not in ({lanes})"), &row)
    });
    let mut parts = sql.split('$');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |sql, part| {
        match part.trim_start_matches(|c: char| c.is_ascii_digit()) {
            rest if rest.len() < part.len() => sql + "?" + rest,
            _ => sql + "$" + part,
        }
    })
}

#[tokio::test]
async fn every_statement_is_prepared_by_the_server() {
    let store = support::store(1).await;
    for (name, sql) in store.statements() {
        let prepared = store.pool().prepare(AssertSqlSafe(nameless(&sql)).into_sql_str()).await;
        prepared.unwrap_or_else(|error| panic!("{name}: {error}\n{sql}"));
    }
}

#[tokio::test]
async fn every_statement_for_the_builtin_map_of_a_mysql_table_is_prepared_by_the_server() {
    let pool = support::pool(1).await;
    let builtin = BuiltinMap::find("donation").unwrap();
    support::run(&pool, builtin.ddl).await;
    let store = MySqlStore::with_map(pool.clone(), builtin.map().unwrap()).unwrap();
    for (name, sql) in store.statements() {
        let prepared = pool.prepare(AssertSqlSafe(nameless(&sql)).into_sql_str()).await;
        prepared.unwrap_or_else(|error| panic!("{name}: {error}\n{sql}"));
    }
}

/// Two processes that start at the same moment must not trip over each other.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_migrations_apply_each_step_once() {
    let pool = support::pool(10).await;
    let tasks = (0..10).map(|_| {
        let store = MySqlStore::new(pool.clone());
        tokio::spawn(async move { store.migrate().await.unwrap().len() })
    });
    let applied: usize = futures::future::try_join_all(tasks).await.unwrap().into_iter().sum();
    let store = MySqlStore::new(pool);
    assert_eq!(applied, store.migrations().len());
    assert_eq!(store.applied().await.unwrap(), [1, 2, 3, 4]);
    assert!(store.migrate().await.unwrap().is_empty(), "a second run does nothing");
}

/// The server commits each change of the schema by itself, so a migration may be found half done.
#[tokio::test]
async fn a_migration_that_was_interrupted_is_finished() {
    let store = support::store(2).await;
    for sql in [
        "delete from posthaste_schema_version where version > 1",
        "drop table posthaste_leaders",
        "drop procedure posthaste_enqueue",
    ] {
        support::run(store.pool(), sql).await;
    }
    assert_eq!(store.migrate().await.unwrap().len(), 3);
    assert_eq!(store.applied().await.unwrap(), [1, 2, 3, 4]);
}

#[tokio::test]
async fn a_prefix_with_an_unusual_name_works() {
    let pool = support::pool(2).await;
    let store = MySqlStore::with_prefix(pool.clone(), "Wei`rd '\\; drop table x; -- $1 ").unwrap();
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
    let store = support::store(2).await;
    for sql in [
        "insert into posthaste_outbox (id, namespace, topic, content_type, payload, headers, status, attempts,
            next_attempt_at, created_at, updated_at, delivered_at)
         values (uuid(), 'default', 't', 'text/plain', 'x', '{}', 'delivered', 1, '2020-01-01', '2020-01-01', '2020-01-01',
            '2020-01-01')",
        "insert into posthaste_outbox_dedupe (namespace, topic, dedupe_key, message_id, held_by, expires_at)
         values ('default', 't', 'k', uuid(), uuid(), '2020-01-01')",
        "create trigger kept before delete on posthaste_outbox for each row
         signal sqlstate '45000' set message_text = 'the law wants it'",
    ] {
        support::run(store.pool(), sql).await;
    }
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

/// Such calls would pile up, one connection each, until none is left for messages.
#[tokio::test]
async fn a_locked_table_of_leaders_is_not_waited_for() {
    let store = support::store(2).await;
    let mut other = store.pool().acquire().await.unwrap();
    other.execute("lock tables posthaste_leaders write").await.unwrap();
    let request = LeadRequest {
        role: LeaderRole::Relay,
        namespace: "default".to_owned(),
        worker: WorkerId::new(),
        lease: Duration::from_secs(10),
    };
    let asked = tokio::time::timeout(Duration::from_secs(30), store.elect_leader(&request));
    let error = asked.await.expect("it waits for the lock").unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Contention, "{error}");
    other.execute("unlock tables").await.unwrap();
    assert_eq!(store.elect_leader(&request).await.unwrap(), Leadership::Held);
}
