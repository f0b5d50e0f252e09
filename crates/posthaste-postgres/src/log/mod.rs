//! A log as an outbox: rows are written once and never changed, a cursor says how far they are settled, failures have a
//! table of their own.
//!
//! One relay reads at a time. It holds an advisory lock on a connection of its own, and writes cursor and failures on that
//! same connection, so a reader that lost the lock cannot write. What it knows beyond the stored cursor (gaps, rows in
//! flight) is in its memory, which outlives a connection, and in a table of our own for a successor, which can repeat what
//! was in flight but not skip. See [`posthaste_sql::log`].

mod admin_store;
mod check;
mod claim;
mod enqueue;
mod error;
mod handled;
mod ids;
mod known;
mod late;
mod reader_lock;
mod relay_store;
mod rows;
mod session;
mod settle;
mod shards;
mod state;
mod statements;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use posthaste_core::store::{Migration, SchemaStore};
use posthaste_core::{OutboxOptions, StoreError};
use posthaste_sql::TableMap;
use posthaste_sql::log::Proof;
use posthaste_sql::table::{Identifier, Table};
use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use sqlx::{PgPool, Postgres, Transaction};
use tokio::sync::Mutex;

pub use enqueue::PostgresLogOutbox;
pub use handled::PostgresHandled;
use reader_lock::ReaderLock;
pub use shards::{Balance, ShardCheckpoint, ShardSeats, TakenShard};
use state::StateTable;
pub(crate) use statements::Statements;

use crate::DEFAULT_SCHEMA;
use crate::pooling::{self, Sessions};
use crate::prepare::PostgresEnqueue;
use crate::table_locks::BEGIN_BOUNDED;

/// How a log is served.
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// use posthaste_postgres::LogLayoutOptions;
/// use posthaste_sql::table::BuiltinMap;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let map = BuiltinMap::find("commerce").ok_or("no such map")?.map()?;
/// let options = LogLayoutOptions::of(&map).retry_interval(Duration::from_secs(1)).purge_log(true);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogLayoutOptions {
    /// Retries after which a failed row is given up and stays for an operator. It says which rows are dead, so it must
    /// not be below what the relay's `retry.max_attempts` allows. Defaults to the map's `policy.retry.max_attempts` less
    /// the first attempt, else to 10.
    pub max_retries: u32,
    /// How often failed rows are looked at. After a full batch, or one that made way for others, they are looked at again
    /// at once. Defaults to 5 s.
    pub retry_interval: Duration,
    /// Most failed rows of one claim. Defaults to 50.
    pub retry_batch: u32,
    /// Whether settled rows of the log are removed after the relay's `retention`. Defaults to false: the log is its
    /// owner's.
    pub purge_log: bool,
    /// How long ids that were proved never to come are looked at all the same, ever more rarely, at last every ten
    /// minutes. A row that is found there got its id outside of the transaction that inserted it; it is delivered late,
    /// and an error says so. Not at all if zero. Defaults to 24 h.
    pub probe_closed_for: Duration,
    /// The schema of the table `log_readers`, in which the reader keeps what it knows beyond the cursor, so that a restart
    /// repeats no more than what was in flight. A relay makes both where it may. None to do without. Defaults to
    /// `posthaste`.
    pub state_schema: Option<String>,
    /// How many ids beyond the stored cursor are read where there is no such table: a restart may repeat as many. A
    /// transaction that stays open keeps the cursor from moving, so then events wait for it. Defaults to 10,000.
    pub max_ahead: u64,
}

impl LogLayoutOptions {
    /// The options that suit a map.
    pub fn of(map: &TableMap) -> Self {
        let attempts = map
            .policy()
            .get("retry")
            .and_then(|retry| retry.get("max_attempts")?.as_u64());
        let retries = attempts.map_or(10, |attempts| attempts.saturating_sub(1));
        Self {
            max_retries: u32::try_from(retries).unwrap_or(u32::MAX),
            retry_interval: Duration::from_secs(5),
            retry_batch: 50,
            purge_log: false,
            probe_closed_for: Duration::from_hours(24),
            state_schema: Some(DEFAULT_SCHEMA.to_owned()),
            max_ahead: 10_000,
        }
    }

    /// Sets [`LogLayoutOptions::max_retries`].
    #[must_use]
    pub fn max_retries(mut self, retries: u32) -> Self {
        self.max_retries = retries;
        self
    }

    /// Sets [`LogLayoutOptions::retry_interval`].
    #[must_use]
    pub fn retry_interval(mut self, interval: Duration) -> Self {
        self.retry_interval = interval;
        self
    }

    /// Sets [`LogLayoutOptions::retry_batch`].
    #[must_use]
    pub fn retry_batch(mut self, rows: u32) -> Self {
        self.retry_batch = rows;
        self
    }

    /// Sets [`LogLayoutOptions::purge_log`].
    #[must_use]
    pub fn purge_log(mut self, purge: bool) -> Self {
        self.purge_log = purge;
        self
    }

    /// Sets [`LogLayoutOptions::probe_closed_for`].
    #[must_use]
    pub fn probe_closed_for(mut self, time: Duration) -> Self {
        self.probe_closed_for = time;
        self
    }

    /// Sets [`LogLayoutOptions::state_schema`].
    #[must_use]
    pub fn state_schema(mut self, schema: Option<String>) -> Self {
        self.state_schema = schema;
        self
    }

    /// Sets [`LogLayoutOptions::max_ahead`].
    #[must_use]
    pub fn max_ahead(mut self, ids: u64) -> Self {
        self.max_ahead = ids;
        self
    }
}

/// An outbox that is a log, in a PostgreSQL database. Cheap to clone; clones share the reader.
///
/// # Examples
/// ```no_run
/// use posthaste_core::{Message, Outbox, OutboxOptions};
/// use posthaste_postgres::PostgresLogStore;
/// use posthaste_sql::TableMap;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = sqlx::PgPool::connect("postgres://localhost/shop").await?;
/// let map = TableMap::from_toml(&std::fs::read_to_string("outbox.toml")?)?;
/// let outbox = PostgresLogStore::new(pool, map)?.outbox(OutboxOptions::default());
///
/// let mut tx = outbox.begin().await?;
/// outbox.enqueue(&mut tx, Message::new("order-events", "{}").aggregate("Order", "42")).await?;
/// outbox.commit(tx).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct PostgresLogStore {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    pool: PgPool,
    map: Arc<TableMap>,
    statements: Statements,
    /// None if the reader's state is kept nowhere.
    state_table: Option<StateTable>,
    enqueue: PostgresEnqueue,
    /// What the application's connections are, which may come through a pooler.
    sessions: Sessions,
    options: LogLayoutOptions,
    proof: Proof,
    /// The log's table, quoted, as `regclass` reads it.
    table: String,
    /// The cursor's. The holder of its lock reads the log, so that two cursors may have readers of their own.
    cursor_table: String,
    reader_lock: Mutex<ReaderLock>,
    /// Milliseconds by which the reader's clock is ahead of the process's.
    ahead: AtomicU64,
}

impl Inner {
    /// A transaction beside the reader's, in which no lock is waited for without end.
    async fn begin_bounded(&self) -> sqlx::Result<Transaction<'static, Postgres>> {
        pooling::begin(&self.pool, BEGIN_BOUNDED).await
    }

    /// One statement in such a transaction: what it may not do undoes nothing that was done before.
    async fn execute_bounded(&self, query: Query<'_, Postgres, PgArguments>) -> sqlx::Result<u64> {
        let mut tx = self.begin_bounded().await?;
        let done = query.execute(&mut *tx).await?;
        tx.commit().await?;
        Ok(done.rows_affected())
    }

    /// The reader's clock.
    fn now(&self) -> Instant {
        Instant::now() + Duration::from_millis(self.ahead.load(Ordering::Relaxed))
    }
}

impl PostgresLogStore {
    /// The log that a map describes.
    ///
    /// # Errors
    /// [`StoreErrorKind::Unsupported`](posthaste_core::store::StoreErrorKind::Unsupported) says what the table lacks.
    pub fn new(pool: PgPool, map: TableMap) -> Result<Self, StoreError> {
        let options = LogLayoutOptions::of(&map);
        Self::with_options(pool, map, options)
    }

    /// The same with other options.
    ///
    /// # Errors
    /// Those of [`PostgresLogStore::new`].
    pub fn with_options(pool: PgPool, map: TableMap, options: LogLayoutOptions) -> Result<Self, StoreError> {
        Self::build(pool, map, options, Proof::Required)
    }

    /// A reader that believes its cursor, as so many do. For the test that shows what that loses.
    #[doc(hidden)]
    pub fn without_proof(pool: PgPool, map: TableMap) -> Result<Self, StoreError> {
        let options = LogLayoutOptions::of(&map);
        Self::build(pool, map, options, Proof::Skipped)
    }

    fn build(pool: PgPool, map: TableMap, options: LogLayoutOptions, proof: Proof) -> Result<Self, StoreError> {
        let map = Arc::new(map);
        let statements = Statements::finish(&map)?;
        let state_table = match &options.state_schema {
            Some(schema) => {
                let schema =
                    Identifier::new(schema).map_err(|error| StoreError::unsupported(error.to_string(), None))?;
                Some(StateTable::finish(&map, schema)?)
            }
            None => None,
        };
        let quoted = |table| map.table(table).map(|table| table.quoted('"')).unwrap_or_default();
        let (table, cursor_table) = (quoted(Table::Outbox), quoted(Table::Cursor));
        let inner = Inner {
            pool,
            enqueue: PostgresEnqueue::of_log(&map, &statements),
            statements,
            state_table,
            sessions: Sessions::default(),
            options,
            proof,
            table,
            cursor_table,
            reader_lock: Mutex::default(),
            ahead: AtomicU64::default(),
            map,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The pool on which operator verbs run. The reader has a connection of its own beside it.
    pub fn pool(&self) -> &PgPool {
        &self.inner.pool
    }

    /// The map.
    pub fn map(&self) -> &TableMap {
        &self.inner.map
    }

    /// The application's side: appending to the log in its own transactions.
    pub fn outbox(&self, options: OutboxOptions) -> PostgresLogOutbox {
        PostgresLogOutbox::new(self.clone(), options)
    }

    /// Lets time pass for the reader's memory without waiting. For tests.
    #[doc(hidden)]
    pub fn pass_time(&self, by: Duration) {
        let by = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
        self.inner.ahead.fetch_add(by, Ordering::Relaxed);
    }

    /// How many ids the reader has passed over and not yet proved empty, and how many it has; `None` if this store does
    /// not read.
    pub async fn gaps(&self) -> Option<(u64, u64)> {
        let lock = self.inner.reader_lock.lock().await;
        let gaps = lock.session()?.reader.gaps();
        Some((gaps.open(), gaps.closed()))
    }
}

/// The tables are their owner's. Only the table for the state of readers is ours, and made if it is missing.
#[async_trait]
impl SchemaStore for PostgresLogStore {
    fn migrations(&self) -> Vec<Migration> {
        Vec::new()
    }

    async fn applied(&self) -> Result<Vec<i64>, StoreError> {
        Ok(Vec::new())
    }

    async fn migrate(&self) -> Result<Vec<Migration>, StoreError> {
        self.inner.create_state_table().await?;
        Ok(Vec::new())
    }

    fn statements(&self) -> Vec<(&'static str, String)> {
        let mut texts = self.inner.statements.texts();
        texts.extend(self.inner.state_table.iter().flat_map(StateTable::texts));
        texts
    }
}
