//! MySQL and MariaDB store of the Posthaste transactional outbox.
//!
//! ```no_run
//! use posthaste_core::{Message, OutboxOptions};
//! use posthaste_mysql::MySqlStore;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let pool = sqlx::MySqlPool::connect("mysql://localhost/shop").await?;
//! let outbox = MySqlStore::new(pool.clone()).outbox(OutboxOptions::default());
//!
//! let mut tx = pool.begin().await?;
//! sqlx::query("insert into orders (id) values (42)").execute(&mut *tx).await?;
//! outbox.enqueue(&mut tx, Message::new("order-events", r#"{"orderId":42}"#).key("42")).await?;
//! tx.commit().await?;
//! # Ok(())
//! # }
//! ```
//!
//! The statements are whole files in `queries/`, the schema is in `migrations/`. No scan ever locks: rows are found by a
//! plain read, locked by their primary key in one order for all, and looked at again before they are changed.

mod admin_store;
mod catalogue;
mod claim;
mod columns;
mod dialect;
mod enqueue;
mod error;
mod executor;
mod inbox_store;
mod janitor;
mod migrate;
mod prepare;
mod recover;
mod registry;
mod relay_store;
mod restore;
mod retry;
mod row_locks;
mod rows;
mod scan_window;
mod session;
mod settle;
mod statement;
mod statements;
mod taking;
mod trial;

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use posthaste_core::{OutboxOptions, StoreError};
use posthaste_sql::TableMap;
use posthaste_sql::table::{BadIdentifier, Database, Kind};
use sqlx::pool::PoolConnection;
use sqlx::{AssertSqlSafe, Executor, MySql, MySqlConnection, MySqlPool, Transaction};

pub use catalogue::MySqlCatalogue;
pub use enqueue::MySqlOutbox;
pub use error::store_error;
pub use executor::EnqueueExecutor;
pub use inbox_store::MySqlInbox;
use janitor::JanitorLocks;
pub use prepare::MySqlEnqueue;
pub use retry::MAX_RETRIES;
use row_locks::HeldClaims;
use statements::Statements;

/// The prefix of Posthaste's tables unless another is chosen.
pub const DEFAULT_PREFIX: &str = "posthaste_";

/// Begins every transaction of the store. Under the server's default, REPEATABLE READ, statements would lock the gaps
/// between rows, and a claim could be shown the past.
const BEGIN: &str = "set transaction isolation level read committed; start transaction";

/// Bounds the wait for a table that another transaction has locked as a whole, or changes; by default that is a day or
/// a year. And bounds how long the server waits for a relay that is frozen or unreachable before it commits: others
/// would pass over the rows that it has locked without a word, by default for eight hours.
const BOUND: &str = "set @posthaste_lock_wait_timeout = @@session.lock_wait_timeout, session lock_wait_timeout = 1,
    @posthaste_wait_timeout = @@session.wait_timeout, session wait_timeout = 10";

/// The connection goes back to the pool as it was.
const UNBOUND: &str = "set session lock_wait_timeout = @posthaste_lock_wait_timeout,
    session wait_timeout = @posthaste_wait_timeout";

/// An outbox in a MySQL or MariaDB database. Cheap to clone.
///
/// # Examples
/// ```no_run
/// use posthaste_core::store::SchemaStore;
/// use posthaste_core::{Message, Outbox, OutboxOptions};
/// use posthaste_mysql::MySqlStore;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let store = MySqlStore::new(sqlx::MySqlPool::connect("mysql://localhost/shop").await?);
/// store.migrate().await?;
///
/// let outbox = store.outbox(OutboxOptions::new().source("urn:acme:shop"));
/// let mut tx = outbox.begin().await?;
/// outbox.enqueue(&mut tx, Message::new("order-events", "{}").key("42")).await?;
/// outbox.commit(tx).await?;
///
/// let inbox = store.inbox("statistics");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct MySqlStore {
    pool: MySqlPool,
    map: Arc<TableMap>,
    statements: Arc<Statements>,
    /// Claims whose rows are kept locked, where the table has no columns for leases.
    held: Arc<HeldClaims>,
    janitor_locks: Arc<JanitorLocks>,
}

impl MySqlStore {
    /// The outbox in the tables `posthaste_outbox` and so on.
    #[expect(clippy::missing_panics_doc, reason = "the default prefix is valid")]
    pub fn new(pool: MySqlPool) -> Self {
        Self::with_prefix(pool, DEFAULT_PREFIX).expect("the default prefix is valid")
    }

    /// The outbox in tables with a prefix of your choice.
    ///
    /// # Errors
    /// If it cannot be the beginning of a name.
    #[expect(
        clippy::missing_panics_doc,
        reason = "Posthaste's own map has every role that its statements need"
    )]
    pub fn with_prefix(pool: MySqlPool, prefix: &str) -> Result<Self, BadIdentifier> {
        let map = native_map(prefix)?;
        Ok(Self::with_map(pool, map).expect("Posthaste's own map has every role"))
    }

    /// An outbox described by a table map.
    ///
    /// # Errors
    /// [`StoreErrorKind::Unsupported`](posthaste_core::store::StoreErrorKind::Unsupported) says what the table lacks, or what the
    /// database cannot do.
    pub fn with_map(pool: MySqlPool, map: TableMap) -> Result<Self, StoreError> {
        map.check_database(Database::MySql)?;
        retry::register();
        Ok(Self {
            pool,
            statements: Arc::new(Statements::finish(&map)?),
            map: Arc::new(map),
            held: Arc::default(),
            janitor_locks: Arc::default(),
        })
    }

    /// The pool that the store uses.
    pub fn pool(&self) -> &MySqlPool {
        &self.pool
    }

    /// The application's side: enqueueing in its own transactions.
    pub fn outbox(&self, options: OutboxOptions) -> MySqlOutbox {
        MySqlOutbox::new(self.clone(), options)
    }

    /// The consumer's side: handling each delivery once. `consumer` names who handles; each has records of its own.
    pub fn inbox(&self, consumer: impl Into<String>) -> MySqlInbox {
        MySqlInbox::new(self.clone(), consumer.into())
    }

    /// Begins a transaction of the application's, in a task of its own: the caller may stop waiting at any moment, and
    /// half a begin would leave its transaction open on a connection that goes back to the pool. One that nobody waits
    /// for any more is rolled back.
    async fn begin_transaction(&self) -> Result<Transaction<'static, MySql>, StoreError> {
        let pool = self.pool.clone();
        let begun = tokio::spawn(async move { pool.begin_with(BEGIN).await }).await;
        begun.unwrap_or(Err(sqlx::Error::WorkerCrashed)).map_err(store_error)
    }

    async fn begin(&self) -> sqlx::Result<Work> {
        let mut work = Work(Some(self.pool.acquire().await?));
        // With one trip to the server.
        work.execute(AssertSqlSafe(format!("{BOUND}; {BEGIN}"))).await?;
        Ok(work)
    }
}

/// A transaction of the store, in which no table is waited for without end. Unless it is committed its connection is cut, and the server undoes it.
///
/// The driver's own is not used, because it does not know of a transaction before the server has answered: a call that is
/// cancelled before that would give the connection back to the pool with the transaction open, and what is written on
/// it next would not be committed.
struct Work(Option<PoolConnection<MySql>>);

impl Work {
    async fn commit(self) -> sqlx::Result<()> {
        self.end("commit").await
    }

    async fn rollback(self) -> sqlx::Result<()> {
        self.end("rollback").await
    }

    async fn end(mut self, statement: &'static str) -> sqlx::Result<()> {
        self.execute(AssertSqlSafe(format!("{statement}; {UNBOUND}"))).await?;
        drop(self.0.take());
        Ok(())
    }
}

impl Deref for Work {
    type Target = MySqlConnection;

    fn deref(&self) -> &MySqlConnection {
        self.0.as_ref().expect("it is there until it is committed")
    }
}

impl DerefMut for Work {
    fn deref_mut(&mut self) -> &mut MySqlConnection {
        self.0.as_mut().expect("it is there until it is committed")
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if let Some(connection) = &mut self.0 {
            connection.close_on_drop();
        }
    }
}

/// The map of Posthaste's own tables on MySQL and MariaDB: times are `DATETIME(6)` in UTC, and as there are no partial
/// indexes, fresh and waiting rows share one.
pub fn native_map(prefix: &str) -> Result<TableMap, BadIdentifier> {
    let map = TableMap::with_prefix(prefix)?;
    Ok(map.with_times(Kind::Timestamp).without_split_index())
}

/// Compiles the examples of the read-me.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadMe;
