//! PostgreSQL store of the Posthaste transactional outbox.
//!
//! ```no_run
//! use posthaste_core::{Message, OutboxOptions};
//! use posthaste_postgres::PostgresStore;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let pool = sqlx::PgPool::connect("postgres://localhost/shop").await?;
//! let outbox = PostgresStore::new(pool.clone()).outbox(OutboxOptions::default());
//!
//! let mut tx = pool.begin().await?;
//! sqlx::query("insert into orders (id) values (42)").execute(&mut *tx).await?;
//! outbox.enqueue(&mut tx, Message::new("order-events", r#"{"orderId":42}"#).key("42")).await?;
//! tx.commit().await?;
//! # Ok(())
//! # }
//! ```
//!
//! The statements are whole files in `queries/`, the schema is in `migrations/`.

mod admin_store;
mod catalogue;
mod claim;
mod columns;
mod dialect;
mod enqueue;
mod error;
mod executor;
mod handling;
mod inbox_store;
mod janitor;
mod log;
mod migrate;
mod notifier;
mod pooling;
mod prepare;
mod recover;
mod registry;
mod relay_store;
mod restore;
mod rights;
mod row_locks;
mod rows;
mod settle;
mod statements;
mod table_locks;
mod taking;
mod trial;

use std::sync::Arc;

use posthaste_core::integrity::ContentHash;
use posthaste_core::{OutboxOptions, StoreError};
use posthaste_sql::TableMap;
use posthaste_sql::table::{BadIdentifier, Database, Strategy, Table};
use sqlx::PgPool;
use sqlx::postgres::PgConnectOptions;

pub use catalogue::PostgresCatalogue;
pub use enqueue::PostgresOutbox;
pub use error::store_error;
pub use executor::EnqueueExecutor;
pub use inbox_store::PostgresInbox;
use janitor::JanitorLocks;
pub use log::{
    Connections, LogTables, MovePlan, MoveProgress, MoveStep, QueueMove, SegmentLimits, SegmentUpkeep, Unfit,
};
pub use log::{LogLayoutOptions, PostgresHandled, PostgresLogOutbox, PostgresLogStore};
pub use notifier::PostgresNotifier;
pub use pooling::Pooling;
use pooling::Sessions;
pub use prepare::{PendingEnqueue, PostgresEnqueue};
use row_locks::RowLocks;
use statements::Statements;

/// The schema that holds Posthaste's tables unless another is chosen.
pub const DEFAULT_SCHEMA: &str = "posthaste";

/// How a producer's transaction begins here, whatever the server's default is.
const BEGIN: &str = "begin isolation level read committed";

/// An outbox in a PostgreSQL database. Cheap to clone.
///
/// # Examples
/// Its sides: tables, the application's outbox, a consumer's inbox. It is also what a relay serves.
///
/// ```no_run
/// use posthaste_core::store::SchemaStore;
/// use posthaste_core::{Message, Outbox, OutboxOptions};
/// use posthaste_postgres::PostgresStore;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let store = PostgresStore::new(sqlx::PgPool::connect("postgres://localhost/shop").await?);
/// store.migrate().await?;
///
/// let outbox = store.outbox(OutboxOptions::new().source("urn:acme:shop")).with_notifier(store.notifier());
/// let mut tx = outbox.begin().await?;
/// outbox.enqueue(&mut tx, Message::new("order-events", "{}").key("42")).await?;
/// outbox.commit(tx).await?; // and the relay is told
///
/// let inbox = store.inbox("statistics");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct PostgresStore {
    pool: PgPool,
    map: Arc<TableMap>,
    statements: Arc<Statements>,
    enqueue: PostgresEnqueue,
    row_locks: Arc<RowLocks>,
    janitor_locks: Arc<JanitorLocks>,
    sessions: Sessions,
    direct: Option<Arc<PgConnectOptions>>,
}

impl PostgresStore {
    /// The outbox in the schema `posthaste`.
    #[expect(clippy::missing_panics_doc, reason = "the default name is valid")]
    pub fn new(pool: PgPool) -> Self {
        Self::in_schema(pool, DEFAULT_SCHEMA).expect("the default schema's name is valid")
    }

    /// The outbox in a schema of your choice.
    ///
    /// # Errors
    /// If it is no name that PostgreSQL could have.
    #[expect(
        clippy::missing_panics_doc,
        reason = "Posthaste's own map has every role that its statements need"
    )]
    pub fn in_schema(pool: PgPool, schema: &str) -> Result<Self, BadIdentifier> {
        let map = TableMap::in_schema(schema)?;
        Ok(Self::with_map(pool, map).expect("Posthaste's own map has every role"))
    }

    /// An outbox described by a table map.
    ///
    /// # Errors
    /// [`StoreErrorKind::Unsupported`](posthaste_core::store::StoreErrorKind::Unsupported) says what the table lacks; so does a
    /// log, which [`PostgresLogStore`] reads.
    pub fn with_map(pool: PgPool, map: TableMap) -> Result<Self, StoreError> {
        if map.strategy() == Strategy::Log {
            let problem = "it is a log, which `PostgresLogStore` reads";
            return Err(map.not_served_by(Database::Postgres, problem));
        }
        let sessions = Sessions::new(Pooling::default());
        let map = Arc::new(map);
        let statements = Statements::finish(&map, &sessions)?;
        Ok(Self {
            pool,
            enqueue: PostgresEnqueue::of(&map, &statements),
            map,
            statements: Arc::new(statements),
            row_locks: Arc::default(),
            janitor_locks: Arc::default(),
            sessions,
            direct: None,
        })
    }

    /// Says what the pool's connections are, so that the store need not find out.
    #[must_use]
    pub fn pooling(self, pooling: Pooling) -> Self {
        self.sessions.know(pooling);
        self
    }

    /// A way to the server past a pooler in transaction mode: for wake-ups, which need a session of their own. Without one
    /// the relay finds new messages by polling.
    #[must_use]
    pub fn direct(mut self, options: PgConnectOptions) -> Self {
        self.direct = Some(Arc::new(options));
        self
    }

    /// The pool on which relay and operator verbs run.
    pub fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// The application's side: enqueueing in its own transactions.
    pub fn outbox(&self, options: OutboxOptions) -> PostgresOutbox {
        PostgresOutbox::new(self.clone(), options)
    }

    /// The consumer's side: handling each delivery once. `consumer` names who handles; each has records of its own.
    pub fn inbox(&self, consumer: impl Into<String>) -> PostgresInbox {
        PostgresInbox::new(self.clone(), consumer.into())
    }

    /// A notifier that wakes every relay listening to this outbox. Needs a Tokio runtime.
    pub fn notifier(&self) -> PostgresNotifier {
        PostgresNotifier::start(self.clone())
    }

    /// The `LISTEN` channel of this outbox: that of its schema, which the SQL function `ring()` notifies too, or of an
    /// existing table.
    pub fn channel(&self) -> String {
        if let (false, Some(table)) = (self.map.is_native(), self.map.table(Table::Outbox)) {
            let channel = format!("posthaste:{table}");
            // PostgreSQL cuts longer names off where it listens, and refuses them where it notifies.
            let short = || {
                format!("posthaste:{}", ContentHash::of(&[channel.as_bytes()]))
                    .chars()
                    .take(63)
                    .collect()
            };
            return if channel.len() <= 63 { channel } else { short() };
        }
        let schema = self.map.schema().map_or("public", |schema| schema.as_str());
        format!("posthaste:{schema}")
    }
}

/// Compiles the examples of the read-me.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadMe;
