//! Beginning transactions, past connections on which none can begin any more.
//!
//! SQLite rolls back by itself when the disk is full or cannot be read, and when a trigger says `raise(rollback)`. The driver does
//! not hear of it: its own rollback fails, it counts the transaction as open, and the connection goes back to the pool. Such
//! connections are closed here, or every one of a pool would end so and work again only after a restart.

use sqlx::pool::PoolConnection;
use sqlx::{Connection, Sqlite, SqlitePool, Transaction};

/// Takes the write lock at once; a transaction that reads first could not wait for it.
pub(crate) const BEGIN: &str = "BEGIN IMMEDIATE";

/// Begins a transaction that writes.
pub(crate) async fn begin(pool: &SqlitePool) -> sqlx::Result<Transaction<'static, Sqlite>> {
    for _ in 0..pool.options().get_max_connections() {
        match pool.begin_with(BEGIN).await {
            Err(sqlx::Error::InvalidSavePointStatement) if is_file(pool) => close_stuck(pool).await?,
            begun => return begun,
        }
    }
    pool.begin_with(BEGIN).await
}

/// All that can be had.
async fn close_stuck(pool: &SqlitePool) -> sqlx::Result<()> {
    // One may be on its way back to the pool.
    let mut sound = vec![acquire(pool).await?];
    while let Some(connection) = pool.try_acquire() {
        if connection.is_in_transaction() {
            drop(connection.close().await);
        } else {
            sound.push(connection);
        }
    }
    Ok(())
}

/// A connection on which a transaction can begin.
pub(crate) async fn acquire(pool: &SqlitePool) -> sqlx::Result<PoolConnection<Sqlite>> {
    loop {
        let connection = pool.acquire().await?;
        if !connection.is_in_transaction() || !is_file(pool) {
            return Ok(connection);
        }
        drop(connection.close().await);
    }
}

/// A database in memory would be gone with its connection.
fn is_file(pool: &SqlitePool) -> bool {
    let options = pool.connect_options();
    let name = options.get_filename().to_string_lossy();
    name != ":memory:" && !name.starts_with("file:sqlx-in-memory-")
}
