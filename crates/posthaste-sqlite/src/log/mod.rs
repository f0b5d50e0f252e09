//! The log layout: rows are written once and never changed, one reader goes by their numbers, and what was not delivered at
//! once stands in a table beside the log.
//!
//! SQLite has one writer at a time and numbers rows under its lock, so rows appear in the order of their numbers: there are no
//! late commits to look for. One relay reads at a time, under a lease with an epoch; what an earlier reader writes is refused.
//! What it has delivered above the first unsettled row is written down with every checkpoint, so that its successor repeats
//! what was in flight and nothing else.

mod admin_store;
mod checkpoint;
mod claim;
mod enqueue;
mod moving;
mod relay_store;
mod retry;
mod rows;
mod schema;
mod session;
mod settle;
pub(crate) mod statements;
mod trial;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use posthaste_core::store::StoreErrorKind;
use posthaste_core::{OutboxOptions, StoreError};
use posthaste_sql::TableMap;
use posthaste_sql::table::{BadIdentifier, Kind, Table};
use sqlx::SqlitePool;
use tokio::sync::Mutex;

pub use enqueue::SqliteLogOutbox;
pub(crate) use schema::FIRST_VERSION;
use session::Session;
use statements::Statements;

use crate::prepare::EnqueueStatements;
use crate::{DEFAULT_PREFIX, SqliteInbox, SqliteStore};

/// How often failed rows are looked at, unless some are known to be due earlier or a look takes long: see
/// [`posthaste_sql::log::RetryLooks`].
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// An outbox that is a log, in a SQLite database. Cheap to clone; clones share the reader.
///
/// # Examples
/// ```
/// use posthaste_core::store::SchemaStore;
/// use posthaste_core::{Message, Outbox, OutboxOptions};
/// use posthaste_sqlite::SqliteLogStore;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = sqlx::pool::PoolOptions::new().max_connections(1).connect("sqlite::memory:").await?;
/// let store = SqliteLogStore::new(pool);
/// store.migrate().await?;
///
/// let outbox = store.outbox(OutboxOptions::default());
/// let mut tx = outbox.begin().await?;
/// outbox.enqueue(&mut tx, Message::new("order-events", "{}").key("42")).await?;
/// outbox.commit(tx).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct SqliteLogStore {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// The tables that both layouts have: dedupe keys, relays, leaders, the inbox.
    common: SqliteStore,
    map: Arc<TableMap>,
    statements: Statements,
    enqueue: EnqueueStatements,
    /// The name of the log's table, as SQLite's own tables have it.
    table: String,
    session: Mutex<Option<Session>>,
    retry_interval: Duration,
    /// Milliseconds by which the reader's clock is ahead of the process's.
    ahead: AtomicU64,
    /// It was said that another relay reads.
    stands_by: AtomicBool,
    /// Up to this row of the log the last search for old ones came, which found as many as it may.
    purged_to: AtomicI64,
}

impl SqliteLogStore {
    /// The log whose tables begin with `posthaste_`. A pool of one connection is enough, and the most that an in-memory
    /// database can have.
    #[expect(clippy::missing_panics_doc, reason = "the default prefix is valid")]
    pub fn new(pool: SqlitePool) -> Self {
        Self::with_prefix(pool, DEFAULT_PREFIX).expect("the default prefix is valid")
    }

    /// The log whose tables begin with a prefix of your choice.
    ///
    /// # Errors
    /// If it cannot be the beginning of a name.
    #[expect(
        clippy::missing_panics_doc,
        reason = "the map has every table that the statements name"
    )]
    pub fn with_prefix(pool: SqlitePool, prefix: &str) -> Result<Self, BadIdentifier> {
        let map = TableMap::log_with_prefix(prefix)?.with_times(Kind::EpochMs);
        let statements = Statements::finish(&map).expect("the log's map has every table");
        let table = map.table(Table::Outbox).map_or("", |table| table.name.as_str());
        let inner = Inner {
            common: SqliteStore::with_prefix(pool, prefix)?,
            enqueue: EnqueueStatements::of_log(&statements.writing, table),
            statements,
            table: table.to_owned(),
            map: Arc::new(map),
            session: Mutex::default(),
            retry_interval: RETRY_INTERVAL,
            ahead: AtomicU64::default(),
            stands_by: AtomicBool::default(),
            purged_to: AtomicI64::new(i64::MIN),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Looks at failed rows with every claim. For tests.
    #[doc(hidden)]
    #[must_use]
    pub fn retrying_at_once(self) -> Self {
        self.retrying_every(Duration::ZERO)
    }

    /// Looks at failed rows so often. For tests.
    #[doc(hidden)]
    #[must_use]
    pub fn retrying_every(self, interval: Duration) -> Self {
        let inner = &*self.inner;
        let inner = Inner {
            common: inner.common.clone(),
            map: Arc::clone(&inner.map),
            statements: Statements::finish(&inner.map).expect("it was finished before"),
            enqueue: inner.enqueue.clone(),
            table: inner.table.clone(),
            session: Mutex::default(),
            retry_interval: interval,
            ahead: AtomicU64::default(),
            stands_by: AtomicBool::default(),
            purged_to: AtomicI64::new(i64::MIN),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Lets time pass for the reader's memory without waiting. For tests.
    #[doc(hidden)]
    pub fn pass_time(&self, by: Duration) {
        let by = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
        self.inner.ahead.fetch_add(by, Ordering::Relaxed);
    }

    /// The pool on which relay and operator verbs run.
    pub fn pool(&self) -> &SqlitePool {
        self.inner.common.pool()
    }

    /// The map of its tables.
    pub fn map(&self) -> &TableMap {
        &self.inner.map
    }

    /// The application's side: appending to the log in its own transactions.
    pub fn outbox(&self, options: OutboxOptions) -> SqliteLogOutbox {
        SqliteLogOutbox::new(self.clone(), options)
    }

    /// The consumer's side: handling each delivery once. `consumer` names who handles; each has records of its own.
    pub fn inbox(&self, consumer: impl Into<String>) -> SqliteInbox {
        self.inner.common.inbox(consumer)
    }
}

impl Inner {
    /// The reader's clock.
    fn now(&self) -> Instant {
        Instant::now() + Duration::from_millis(self.ahead.load(Ordering::Relaxed))
    }

    /// What a driver's error means.
    fn error(&self, error: sqlx::Error) -> StoreError {
        if !matches!(error, sqlx::Error::RowNotFound) {
            return self.common.error(error);
        }
        // Every other statement of which one row is expected gives one, whatever the tables hold.
        let table = self.map.table(Table::Cursor).map_or("", |table| table.name.as_str());
        StoreError {
            kind: StoreErrorKind::Other,
            message: format!("SQLite: the row of {table} is gone, so it is not known how far the log is settled"),
            remedy: Some(
                "restore the row from a backup; `insert into posthaste_log_reader (shard) values (0)` delivers everything that is in the \
                 log again",
            ),
            source: Some(Box::new(error)),
        }
    }
}
