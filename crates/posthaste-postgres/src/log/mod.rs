//! A log as an outbox: rows are written once and never changed, a cursor says how far they are settled, failures have a
//! table of their own.
//!
//! A log has one [`reader::Reader`], or one for each of its shards, which the relays divide among themselves
//! ([`readers::Readers`]). It holds an advisory lock on a connection of its own, and writes cursor and failures on that
//! same connection, so a reader that lost the lock cannot write. What it knows beyond the stored cursor (gaps, rows in
//! flight) is in its memory, which outlives a connection, and in a table of our own for a successor, which can repeat what
//! was in flight but not skip. See [`posthaste_sql::log`].

mod admin_store;
mod check;
mod chunk;
mod claim;
mod contention;
mod enqueue;
mod error;
mod first_segment;
mod handled;
mod hold_ups;
mod ids;
mod keeper;
mod known;
mod late;
mod listing;
mod load;
mod migrate;
mod own_row;
mod parking;
mod read_ahead;
mod reader;
mod reader_lock;
mod readers;
mod relay_store;
mod restore;
mod retry;
mod rows;
mod seats;
mod session;
mod settle;
mod shard;
mod slots;
mod state;
mod statements;
mod tables;
mod tail;
mod unread;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use posthaste_core::{OutboxOptions, StoreError};
use posthaste_sql::TableMap;
use posthaste_sql::log::Proof;
use posthaste_sql::table::{Identifier, Table};
use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use sqlx::{PgPool, Postgres, Transaction};
use tokio::sync::Semaphore;
use uuid::Uuid;

pub use enqueue::PostgresLogOutbox;
pub use handled::PostgresHandled;
pub(crate) use migrate::FIRST as FIRST_MIGRATION;
use read_ahead::MAX_READ_AHEAD;
use reader::Reader;
use readers::Readers;
use shard::{NO_EPOCH, Shard, of_segments, of_shard};
use state::StateTable;
pub(crate) use statements::Statements;
pub use tables::{
    Connections, LogTables, MovePlan, MoveProgress, MoveStep, QueueMove, SegmentLimits, SegmentUpkeep, Unfit,
};
pub(crate) use unread::unread;

use crate::DEFAULT_SCHEMA;
use crate::error::store_error;
use crate::pooling::{self, Pooling, Sessions};
use crate::prepare::PostgresEnqueue;
use crate::table_locks::BEGIN_BOUNDED;
use crate::{PostgresInbox, PostgresNotifier, PostgresStore};

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
    /// the first attempt, else to 10. Where a column says when a row was given up, as in Posthaste's own log, that says it.
    pub max_retries: u32,
    /// How often failed rows are looked at. After a full batch, or one that made way for others, they are looked at again
    /// at once. Defaults to 5 s, in Posthaste's own log, where messages may wait for a time of their own, to 1 s.
    pub retry_interval: Duration,
    /// Most failed rows of one claim. Defaults to 50, in Posthaste's own log, where many may come due together, to 500.
    pub retry_batch: u32,
    /// Whether settled rows of the log are removed after the relay's `retention`. Defaults to false: the log is its
    /// owner's.
    pub purge_log: bool,
    /// How long ids that were proved never to come are looked at all the same, ever more rarely, at last every ten
    /// minutes. A row that is found there got its id outside of the transaction that inserted it; it is delivered late,
    /// and an error says so. Not at all if zero, as it is for Posthaste's own log. Defaults to 24 h.
    pub probe_closed_for: Duration,
    /// When rows of Posthaste's own log go on to a new segment, which then can be dropped as a whole: a segment that has rows
    /// is closed at this age, at the next round of the janitor. Defaults to 1 h.
    pub segment_age: Duration,
    /// The rows with which it is closed before. Defaults to 5,000,000.
    pub segment_rows: u64,
    /// The schema of the table `log_readers`, in which the reader keeps what it knows beyond the cursor, so that a restart
    /// repeats no more than what was in flight. A relay makes both where it may. None to do without. Defaults to
    /// `posthaste`.
    pub state_schema: Option<String>,
    /// How many ids beyond the stored cursor are read where there is no such table: a restart may repeat as many. A
    /// transaction that stays open keeps the cursor from moving, so then events wait for it. Defaults to 10,000.
    pub max_ahead: u64,
    /// How many shards of Posthaste's own log a relay reads at once, each on a connection of its own. Those beyond take turns,
    /// so that many shards do not take the connections that applications need. At least one. Defaults to 16.
    pub max_readers: u32,
}

impl LogLayoutOptions {
    /// The options that suit a map.
    pub fn of(map: &TableMap) -> Self {
        let attempts = map
            .policy()
            .get("retry")
            .and_then(|retry| retry.get("max_attempts")?.as_u64());
        let retries = attempts.map_or(10, |attempts| attempts.saturating_sub(1));
        // Who has tables of their own writes ids there as they like; Posthaste's are taken by the insert.
        let probe_closed_for = Duration::from_hours(if map.is_native() { 0 } else { 24 });
        Self {
            max_retries: u32::try_from(retries).unwrap_or(u32::MAX),
            retry_interval: Duration::from_secs(if map.is_native() { 1 } else { 5 }),
            retry_batch: if map.is_native() { 500 } else { 50 },
            purge_log: false,
            probe_closed_for,
            segment_age: SegmentLimits::default().age,
            segment_rows: SegmentLimits::default().rows,
            state_schema: Some(DEFAULT_SCHEMA.to_owned()),
            max_ahead: 10_000,
            max_readers: 16,
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

    /// Sets [`LogLayoutOptions::segment_age`].
    #[must_use]
    pub fn segment_age(mut self, age: Duration) -> Self {
        self.segment_age = age;
        self
    }

    /// Sets [`LogLayoutOptions::segment_rows`].
    #[must_use]
    pub fn segment_rows(mut self, rows: u64) -> Self {
        self.segment_rows = rows;
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

    /// Sets [`LogLayoutOptions::max_readers`].
    #[must_use]
    pub fn max_readers(mut self, readers: u32) -> Self {
        self.max_readers = readers;
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
    log: Arc<Log>,
    readers: Arc<Readers>,
}

/// What all readers of a log share.
#[derive(Debug)]
struct Log {
    pool: PgPool,
    map: Arc<TableMap>,
    /// What Posthaste's own log shares with the queue of its schema: migrations, dedupe keys, relays and consumers.
    beside: Option<PostgresStore>,
    /// The segments and shards of Posthaste's own log.
    tables: Option<LogTables>,
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
    /// Who this is, so that it knows what it wrote itself.
    id: Uuid,
    /// For how many readers of this process more rows may be read ahead.
    ahead_permits: Arc<Semaphore>,
    /// Milliseconds by which the reader's clock is ahead of the process's.
    ahead: AtomicU64,
}

impl Log {
    /// Whether it is Posthaste's own log: its table of failures counts every try, and says when one was given up.
    fn is_native(&self) -> bool {
        self.beside.is_some()
    }

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
        // Posthaste's own log keeps it with its shards.
        let state_schema = match map.schema().filter(|_| map.is_native()) {
            Some(schema) => Some(schema.as_str().to_owned()),
            None => options.state_schema.clone(),
        };
        let state_table = match &state_schema {
            Some(schema) => {
                let schema =
                    Identifier::new(schema).map_err(|error| StoreError::unsupported(error.to_string(), None))?;
                Some(StateTable::finish(&map, schema)?)
            }
            None => None,
        };
        let quoted = |table| map.table(table).map(|table| table.quoted('"')).unwrap_or_default();
        let cursor_table = if map.is_native() {
            Table::ReaderState
        } else {
            Table::Cursor
        };
        let (table, cursor_table) = (quoted(Table::Outbox), quoted(cursor_table));
        let schema = map.schema().filter(|_| map.is_native());
        let beside = schema.map(|schema| PostgresStore::in_schema(pool.clone(), schema.as_str()));
        let beside = beside.transpose().map_err(StoreError::other)?;
        let limits = SegmentLimits::default()
            .age(options.segment_age)
            .rows(options.segment_rows);
        let tables = schema.map(|schema| LogTables::in_schema(pool.clone(), schema.as_str()));
        let tables = tables.transpose()?.map(|tables| tables.limits(limits));
        let log = Log {
            pool,
            beside,
            tables,
            enqueue: PostgresEnqueue::of_log(&map, &statements),
            statements,
            state_table,
            sessions: Sessions::default(),
            options,
            proof,
            table,
            cursor_table,
            id: Uuid::new_v4(),
            ahead_permits: Arc::new(Semaphore::new(MAX_READ_AHEAD)),
            ahead: AtomicU64::default(),
            map,
        };
        let log = Arc::new(log);
        let readers = Arc::new(Readers::of(&log));
        Ok(Self { log, readers })
    }

    /// Says what the connections of the pool are, as [`PostgresStore::pooling`] does. Defaults to [`Pooling::Detect`].
    #[must_use]
    pub fn pooling(self, pooling: Pooling) -> Self {
        self.log.sessions.know(pooling);
        if let Some(beside) = &self.log.beside {
            // Clones share what is known.
            drop(beside.clone().pooling(pooling));
        }
        self
    }

    /// Refuses a pooler that gives each transaction another session: the relay's and the operator's verbs need sessions of their
    /// own. Appending to the log does not.
    ///
    /// # Errors
    /// That there is one.
    pub async fn refuse_pooler(&self) -> Result<(), StoreError> {
        if self.log.sessions.detect(&self.log.pool).await != Pooling::Transaction {
            return Ok(());
        }
        Err(StoreError::unsupported(
            "the connection is shared with others, as behind PgBouncer with pool_mode = transaction, and a log is read and looked after \
             in sessions of one's own",
            Some("set database.direct_url to the server's own address, or use a pool with pool_mode = session"),
        ))
    }

    /// The pool on which operator verbs run. The reader has a connection of its own beside it.
    pub fn pool(&self) -> &PgPool {
        &self.log.pool
    }

    /// The map.
    pub fn map(&self) -> &TableMap {
        &self.log.map
    }

    /// The application's side: appending to the log in its own transactions.
    pub fn outbox(&self, options: OutboxOptions) -> PostgresLogOutbox {
        PostgresLogOutbox::new(self.clone(), options)
    }

    /// A notifier that wakes every relay listening to Posthaste's own log; existing tables are looked at from time to time.
    /// Needs a Tokio runtime.
    pub fn notifier(&self) -> Option<PostgresNotifier> {
        self.log.beside.as_ref().map(PostgresStore::notifier)
    }

    /// The consumer's side, beside Posthaste's own log: handling each delivery once.
    pub fn inbox(&self, consumer: impl Into<String>) -> Option<PostgresInbox> {
        let beside = self.log.beside.as_ref()?;
        Some(beside.inbox(consumer))
    }

    /// What keeps the newest shards of Posthaste's own log waiting for those before; nothing while they are read.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn hold_ups(&self) -> Result<Vec<String>, StoreError> {
        let Some(schema) = self.log.map.schema().filter(|_| self.log.is_native()) else {
            return Ok(Vec::new());
        };
        let mut tx = seats::begin_look(&self.log.pool).await?;
        let found = seats::hold_ups(&mut tx, schema).await?;
        tx.rollback().await.map_err(store_error)?;
        Ok(found)
    }

    /// The shards of Posthaste's own log whose sequence was set back, so that new messages count as read: for each what a relay of it
    /// says, with what sets it right.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn sequences_set_back(&self) -> Result<Vec<StoreError>, StoreError> {
        let Some(schema) = self.log.map.schema().filter(|_| self.log.is_native()) else {
            return Ok(Vec::new());
        };
        let mut tx = seats::begin_look(&self.log.pool).await?;
        let found = seats::set_back(&mut tx, schema).await?;
        tx.rollback().await.map_err(store_error)?;
        let refusals = found.into_iter().filter_map(|found| {
            let shard = Shard::of(&self.log.map, found.shard, NO_EPOCH)?;
            Some(ids::own_was_set_back(&shard, found.last, found.read_to).into())
        });
        Ok(refusals.collect())
    }

    /// The segments and shards of Posthaste's own log, which it looks after by itself; existing tables have none.
    pub fn tables(&self) -> Option<&LogTables> {
        self.log.tables.as_ref()
    }

    /// Lets time pass for the reader's memory without waiting. For tests.
    #[doc(hidden)]
    pub fn pass_time(&self, by: Duration) {
        let by = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
        self.log.ahead.fetch_add(by, Ordering::Relaxed);
    }

    /// How many ids the reader has passed over and not yet proved empty, and how many it has; `None` if this store does
    /// not read.
    pub async fn gaps(&self) -> Option<(u64, u64)> {
        let mut gaps = None;
        for reader in self.readers.all() {
            if let Some(session) = reader.lock.lock().await.session() {
                let (open, closed) = gaps.unwrap_or_default();
                let found = session.reader.gaps();
                gaps = Some((open + found.open(), closed + found.closed()));
            }
        }
        gaps
    }
}
