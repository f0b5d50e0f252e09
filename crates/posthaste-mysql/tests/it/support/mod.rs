//! A migrated outbox of its own for every test, on the server that `cargo xtask test` starts.

#![allow(dead_code, reason = "each test target uses its own part of this module")]

use posthaste_core::store::SchemaStore;
use posthaste_mysql::MySqlStore;
use sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions};
use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection, MySqlPool};

/// The address of the test server.
pub fn server_url() -> String {
    std::env::var("POSTHASTE_TEST_MYSQL_URL")
        .expect("POSTHASTE_TEST_MYSQL_URL names no server: run these tests with `cargo xtask test`")
}

/// Lets a query make many rows out of nothing. Each server has its own name for that, and reads its own comment.
pub const DEEP_RECURSION: &str = "set @posthaste = 0 /*M! , max_recursive_iterations = 1000000 */ \
                                  /*!80000 , cte_max_recursion_depth = 1000000 */;";

fn options() -> MySqlConnectOptions {
    server_url().parse().expect("a URL of MySQL")
}

/// Whether this part of the tests was left out because the machine lacks something.
pub fn left_out(need: &str) -> bool {
    let without = std::env::var("POSTHASTE_TEST_WITHOUT").unwrap_or_default();
    without.split(',').any(|missing| missing == need)
}

/// A database that no other test uses. Returns its name.
pub async fn fresh_database() -> String {
    let name = format!("t_{}", uuid::Uuid::new_v4().simple());
    let mut conn = MySqlConnection::connect_with(&options())
        .await
        .expect("the test server is up");
    let create = format!("create database {name} character set utf8mb4");
    conn.execute(AssertSqlSafe(create)).await.expect("a new database");
    name
}

/// A pool on that database. Groups must be full, as MySQL wants it by default and an owner of MariaDB may.
pub async fn pool_on(database: &str, connections: u32) -> MySqlPool {
    let full_groups = "set session sql_mode = concat(@@session.sql_mode, ',ONLY_FULL_GROUP_BY')";
    MySqlPoolOptions::new()
        .max_connections(connections)
        .after_connect(move |conn, _| {
            Box::pin(async move {
                conn.execute(full_groups).await?;
                Ok(())
            })
        })
        .connect_with(options().database(database))
        .await
        .expect("the test server is up")
}

/// A pool on a fresh database.
pub async fn pool(connections: u32) -> MySqlPool {
    pool_on(&fresh_database().await, connections).await
}

/// A migrated store in a fresh database.
pub async fn store(connections: u32) -> MySqlStore {
    let store = MySqlStore::new(pool(connections).await);
    store.migrate().await.expect("migrations apply");
    store
}

/// Runs statements.
pub async fn run(pool: &MySqlPool, sql: impl Into<String>) {
    let sql = sql.into();
    let done = pool.execute(sqlx::raw_sql(AssertSqlSafe(sql.clone()))).await;
    done.unwrap_or_else(|error| panic!("{error}: {sql}"));
}

/// Removes the database of a test that passed.
pub async fn drop_database(pool: &MySqlPool) {
    let name: String = sqlx::query_scalar("select database()")
        .fetch_one(pool)
        .await
        .expect("a name");
    run(pool, format!("drop database {name}")).await;
    pool.close().await;
}
