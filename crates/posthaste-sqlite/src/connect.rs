//! Opening a database file as an outbox wants it.

use std::path::Path;
use std::time::Duration;

use posthaste_core::StoreError;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};

use crate::SqliteStore;
use crate::error::store_error;

/// How long a connection waits for another one's write transaction.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// One connection writes at a time; the others read beside it.
const CONNECTIONS: u32 = 4;

impl SqliteStore {
    /// Opens a database file, creating it if it is not there. The tables are not created: see
    /// [`SchemaStore::migrate`](posthaste_core::store::SchemaStore::migrate).
    ///
    /// The file gets a write-ahead log, so that readers and the one writer do not block each other, and a writer waits up
    /// to five seconds for its turn. Every commit is on the disk before it returns (`synchronous = FULL`): with `NORMAL` a
    /// power failure could undo the last commits, the business data and its events together, which is consistent, but
    /// an event that was delivered before the failure would tell of data that is no more. Open a pool yourself to choose
    /// otherwise.
    ///
    /// Foreign keys are enforced: business rows are written through this pool, too.
    ///
    /// `:memory:` opens a database that lives as long as the store, on a single connection: every connection to it would
    /// be a database of its own.
    pub async fn connect(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        let path = path.as_ref();
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(BUSY_TIMEOUT);
        let pool = if path == Path::new(":memory:") {
            SqlitePoolOptions::new()
                .max_connections(1)
                .idle_timeout(None)
                .max_lifetime(None)
        } else {
            SqlitePoolOptions::new().max_connections(CONNECTIONS)
        };
        let pool = pool.connect_with(options).await.map_err(|error| {
            let error = store_error(error);
            StoreError {
                message: format!("cannot open {}: {}", path.display(), error.message),
                ..error
            }
        })?;
        Ok(Self::new(pool))
    }
}
