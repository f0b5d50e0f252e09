//! A database of the test's own.
#![allow(dead_code, reason = "each test binary uses its own part of it")]

use donation::donate::Donation;
use donation::setup;
use sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions};
use sqlx::{AssertSqlSafe, Executor, MySqlPool};
use uuid::Uuid;

/// Whether the test runner said that there is no MariaDB on this machine.
pub fn left_out() -> bool {
    let without = std::env::var("POSTHASTE_TEST_WITHOUT").unwrap_or_default();
    let left_out = without.split(',').any(|server| server == "mariadb");
    if left_out {
        eprintln!("NOT RUN: this test needs MariaDB");
    }
    left_out
}

/// A fresh database with the service's tables, a guest `ann` who has 100 points, and an admin `bob` who has none.
pub async fn database() -> Option<MySqlPool> {
    if left_out() {
        return None;
    }
    let url = std::env::var("POSTHASTE_TEST_MYSQL_URL")
        .expect("POSTHASTE_TEST_MYSQL_URL names no server: run these tests with `cargo xtask test`");
    let options: MySqlConnectOptions = url.parse().unwrap();
    let name = format!("donation_{}", Uuid::new_v4().simple());
    let server = MySqlPool::connect_with(options.clone()).await.unwrap();
    server
        .execute(AssertSqlSafe(format!("create database {name}")))
        .await
        .unwrap();
    server.close().await;
    let pool = MySqlPoolOptions::new()
        .max_connections(16)
        .connect_with(options.database(&name))
        .await
        .unwrap();
    setup::tables(&pool).await.unwrap();
    setup::member(&pool, "ann", "ann's browser", 100).await.unwrap();
    setup::member(&pool, "bob", "bob's browser", 0).await.unwrap();
    Some(pool)
}

/// Ann gives to Bob.
pub fn from_ann(request_id: &str, amount: i64) -> Donation {
    Donation {
        request_id: request_id.to_owned(),
        guest: "ann".to_owned(),
        admin: "bob's browser".to_owned(),
        amount,
    }
}

pub async fn points(pool: &MySqlPool, uuid: &str) -> i64 {
    let points = sqlx::query_scalar("select point from member where uuid = ?");
    points.bind(uuid).fetch_one(pool).await.unwrap()
}

/// How many rows these tables have.
pub async fn counts<const N: usize>(pool: &MySqlPool, tables: [&str; N]) -> [i64; N] {
    let mut counts = [0; N];
    for (count, table) in counts.iter_mut().zip(tables) {
        let sql = AssertSqlSafe(format!("select count(*) from {table}"));
        *count = sqlx::query_scalar(sql).fetch_one(pool).await.unwrap();
    }
    counts
}
