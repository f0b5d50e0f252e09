//! A migrated outbox in a file of its own for every test.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use posthaste_core::store::SchemaStore;
use posthaste_sqlite::SqliteStore;
use sqlx::SqlitePool;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use tempfile::TempDir;

/// A store and the directory that goes with it.
#[allow(dead_code, reason = "each test target uses its own part of this module")]
pub struct Fresh {
    store: SqliteStore,
    #[allow(dead_code, reason = "each test target uses its own part of this module")]
    pub directory: TempDir,
}

impl Deref for Fresh {
    type Target = SqliteStore;

    fn deref(&self) -> &SqliteStore {
        &self.store
    }
}

/// How the tests open files: as the product does, but without waiting for the disk.
pub fn options(directory: &TempDir) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(directory.path().join("outbox.db"))
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Off)
}

/// A pool on a new file.
pub async fn pool(connections: u32) -> (SqlitePool, TempDir) {
    let directory = tempfile::tempdir().expect("a directory for the test");
    let pool = SqlitePoolOptions::new().max_connections(connections);
    let pool = pool
        .connect_with(options(&directory))
        .await
        .expect("the file can be opened");
    (pool, directory)
}

/// A migrated store in a new file.
#[allow(dead_code, reason = "each test target uses its own part of this module")]
pub async fn store(connections: u32) -> Fresh {
    let (pool, directory) = pool(connections).await;
    let store = SqliteStore::new(pool);
    store.migrate().await.expect("migrations apply");
    Fresh { store, directory }
}

/// Counts what SQLite does, in hundreds of instructions of its machine, which is the same on a quick computer and on a slow one.
#[allow(dead_code, reason = "each test target uses its own part of this module")]
pub struct Work(Arc<AtomicU64>);

#[allow(dead_code, reason = "each test target uses its own part of this module")]
impl Work {
    /// On a pool of one connection.
    pub async fn of(pool: &SqlitePool) -> Self {
        assert_eq!(pool.options().get_max_connections(), 1);
        let counted = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&counted);
        let mut connection = pool.acquire().await.expect("the connection is free");
        let mut handle = connection.lock_handle().await.expect("the connection works");
        handle.set_progress_handler(100, move || {
            count.fetch_add(1, Ordering::Relaxed);
            true
        });
        Self(counted)
    }

    /// What was done since this was asked.
    pub fn done(&self) -> u64 {
        self.0.swap(0, Ordering::Relaxed)
    }
}
