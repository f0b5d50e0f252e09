//! SQLite store of the Posthaste transactional outbox.
//!
//! ```no_run
//! use posthaste_core::{Message, OutboxOptions};
//! use posthaste_sqlite::SqliteStore;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let store = SqliteStore::connect("shop.db").await?;
//! let outbox = store.outbox(OutboxOptions::default());
//!
//! let mut tx = store.pool().begin_with("BEGIN IMMEDIATE").await?;
//! sqlx::query("insert into orders (id) values (42)").execute(&mut *tx).await?;
//! outbox.enqueue(&mut tx, Message::new("order-events", r#"{"orderId":42}"#).key("42")).await?;
//! tx.commit().await?;
//! # Ok(())
//! # }
//! ```
//!
//! The statements are whole files in `queries/`, the schema is in `migrations/`.
//!
//! SQLite has one writer at a time. Begin transactions that write with `BEGIN IMMEDIATE`: they wait for their turn, while
//! a plain `BEGIN` that has read fails at once if another transaction wrote in between. Relays ask for the write lock
//! only when there is work.
//!
//! Any language can enqueue with a plain `insert into posthaste_outbox (topic, ordering_key, payload) values (…)`.

mod admin_store;
mod begin;
mod catalogue;
mod claim;
mod columns;
mod connect;
mod dialect;
mod enqueue;
mod error;
mod executor;
mod inbox_store;
mod janitor;
mod log;
mod migrate;
mod opened_file;
mod prepare;
mod recover;
mod registry;
mod relay_store;
mod restore;
mod rows;
mod statements;
mod support;
mod taking;
mod trial;
mod wake;

use std::sync::Arc;

use posthaste_core::store::StoreErrorKind;
use posthaste_core::{OutboxOptions, StoreError};
use posthaste_sql::TableMap;
use posthaste_sql::table::{BadIdentifier, Kind, Table};
use sqlx::SqlitePool;

pub use catalogue::SqliteCatalogue;
pub use enqueue::SqliteOutbox;
pub use error::store_error;
pub use executor::EnqueueExecutor;
pub use inbox_store::SqliteInbox;
use janitor::JanitorLocks;
pub use log::{SqliteLogOutbox, SqliteLogStore};
use opened_file::OpenedFile;
pub use prepare::SqliteEnqueue;
use statements::Statements;

/// What the names of Posthaste's tables begin with unless another prefix is chosen.
pub const DEFAULT_PREFIX: &str = "posthaste_";

/// An outbox in a SQLite database. Cheap to clone.
///
/// # Examples
/// ```
/// use posthaste_core::store::SchemaStore;
/// use posthaste_core::{AdminStore, Message, Outbox, OutboxOptions};
/// use posthaste_sqlite::SqliteStore;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = sqlx::pool::PoolOptions::new().max_connections(1).connect("sqlite::memory:").await?;
/// let store = SqliteStore::new(pool);
/// store.migrate().await?;
///
/// let outbox = store.outbox(OutboxOptions::new().source("urn:acme:shop"));
/// let mut tx = outbox.begin().await?;
/// outbox.enqueue(&mut tx, Message::new("order-events", "{}").key("42")).await?;
/// outbox.commit(tx).await?;
///
/// assert_eq!(store.list(&Default::default(), None, 10).await?.len(), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct SqliteStore {
    pool: SqlitePool,
    map: Arc<TableMap>,
    statements: Arc<Statements>,
    janitor_locks: Arc<JanitorLocks>,
    opened_file: Arc<OpenedFile>,
}

impl SqliteStore {
    /// The outbox whose tables begin with `posthaste_`. A pool of one connection is enough, and the most that an
    /// in-memory database can have. See [`SqliteStore::connect`] for a pool with fitting options.
    #[expect(clippy::missing_panics_doc, reason = "the default prefix is valid")]
    pub fn new(pool: SqlitePool) -> Self {
        Self::with_prefix(pool, DEFAULT_PREFIX).expect("the default prefix is valid")
    }

    /// The outbox whose tables begin with a prefix of your choice.
    ///
    /// # Errors
    /// If it cannot be the beginning of a name.
    #[expect(
        clippy::missing_panics_doc,
        reason = "Posthaste's own map has every role that its statements need"
    )]
    pub fn with_prefix(pool: SqlitePool, prefix: &str) -> Result<Self, BadIdentifier> {
        let map = TableMap::with_prefix(prefix)?.with_times(Kind::EpochMs);
        Ok(Self::with_map(pool, map).expect("Posthaste's own map has every role"))
    }

    /// An outbox described by a table map, in an existing table, which must have columns for leases.
    ///
    /// # Errors
    /// [`StoreErrorKind::Unsupported`] says what the table lacks.
    pub fn with_map(pool: SqlitePool, map: TableMap) -> Result<Self, StoreError> {
        support::ensure_supported(&map)?;
        let statements = Statements::finish(&map)?;
        Ok(Self {
            pool,
            map: Arc::new(map),
            statements: Arc::new(statements),
            janitor_locks: Arc::default(),
            opened_file: Arc::default(),
        })
    }

    /// The pool on which relay and operator verbs run.
    pub fn pool(&self) -> &SqlitePool {
        &self.pool
    }

    /// The table map that it serves.
    pub fn map(&self) -> &TableMap {
        &self.map
    }

    /// The application's side: enqueueing in its own transactions.
    pub fn outbox(&self, options: OutboxOptions) -> SqliteOutbox {
        SqliteOutbox::new(self.clone(), options)
    }

    /// The consumer's side: handling each delivery once. `consumer` names who handles; each has records of its own.
    pub fn inbox(&self, consumer: impl Into<String>) -> SqliteInbox {
        SqliteInbox::new(self.clone(), consumer.into())
    }

    /// What a driver's error means for this table.
    fn error(&self, error: sqlx::Error) -> StoreError {
        let error = store_error(error);
        let remedy = match error.kind {
            StoreErrorKind::SchemaMissing => Some(self.schema_remedy()),
            _ => error.remedy,
        };
        StoreError { remedy, ..error }
    }

    /// What to do when a table or column is missing.
    fn schema_remedy(&self) -> &'static str {
        if self.map.has(Table::Migrations) {
            error::MIGRATE
        } else {
            "run `posthaste maps check`, which says what the table lacks and how to add it"
        }
    }
}

/// Compiles the examples of the read-me.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadMe;
