//! The tables, and people who donate.

use sqlx::{Executor, MySqlPool};

/// Creates the service's tables, its outbox among them.
pub async fn tables(pool: &MySqlPool) -> sqlx::Result<()> {
    pool.execute(include_str!("../schema.sql")).await?;
    Ok(())
}

/// Registers a member with points.
pub async fn member(pool: &MySqlPool, uuid: &str, fingerprint: &str, points: i64) -> sqlx::Result<()> {
    sqlx::query("insert into member (uuid, fingerprint, point) values (?, ?, ?)")
        .bind(uuid)
        .bind(fingerprint)
        .bind(points)
        .execute(pool)
        .await?;
    Ok(())
}
