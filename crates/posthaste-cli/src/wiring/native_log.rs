//! Posthaste's own log beside a queue, whichever of the two is served.

use anyhow::{Context, bail};
use posthaste_core::StoreError;
use posthaste_core::message::DEFAULT_NAMESPACE;
use posthaste_core::store::{AdminStore, Migration, OutboxStats, ShardStatus, Store};
use posthaste_postgres::{DEFAULT_SCHEMA, MoveProgress, PostgresLogStore};
use posthaste_sql::TableMap;
use posthaste_sql::table::Layout;
use posthaste_sqlite::SqliteLogStore;

use super::{IfMissing, postgres_log, postgres_options, sqlite_log, sqlite_pool};
use crate::config::{Database, DatabaseUrl};
use crate::pool;

/// Posthaste's own log, on a database that has one.
pub enum NativeLog {
    Postgres(PostgresLogStore),
    Sqlite(SqliteLogStore),
}

/// The first migration of a log; those of the queue have lower numbers.
pub const FIRST_LOG_VERSION: i64 = 1001;

impl NativeLog {
    /// How far a move of the queue to it has come. On SQLite it is one transaction, which leaves no trace.
    pub async fn move_progress(&self) -> Result<MoveProgress, StoreError> {
        match self {
            Self::Postgres(store) => match store.tables() {
                Some(tables) => tables.queue_move().progress().await,
                None => Ok(MoveProgress::NotBegun),
            },
            Self::Sqlite(_) => Ok(MoveProgress::NotBegun),
        }
    }

    /// What is in it, without the queue beside it.
    pub async fn stats(&self) -> Result<OutboxStats, StoreError> {
        let store = self.store();
        let before = store.left_in_queue().await?;
        let all = store.stats(DEFAULT_NAMESPACE).await?;
        let after = store.left_in_queue().await?;
        // Nothing that was written to the queue meanwhile, or delivered from it, may be taken for the log's.
        let in_queue = |count: fn(&OutboxStats) -> u64| count(&before).max(count(&after));
        let undelivered = all.undelivered().saturating_sub(in_queue(OutboxStats::undelivered));
        let processing = all
            .processing
            .saturating_sub(in_queue(|queue| queue.processing))
            .min(undelivered);
        let pending = undelivered - processing;
        Ok(OutboxStats {
            pending,
            waiting: all.waiting.saturating_sub(in_queue(|queue| queue.waiting)).min(pending),
            processing,
            dead: all.dead,
            oldest_seconds: if undelivered > 0 { all.oldest_seconds } else { 0.0 },
        })
    }

    /// Who reads it, and how far.
    pub async fn shards(&self) -> Result<Vec<ShardStatus>, StoreError> {
        match self {
            Self::Postgres(store) => store.shards().await,
            Self::Sqlite(store) => store.shards().await,
        }
    }

    /// Shards in which new messages count as read, with what sets that right. On SQLite a relay does.
    pub async fn sequences_set_back(&self) -> Result<Vec<String>, StoreError> {
        match self {
            Self::Postgres(store) => {
                let problems = store.sequences_set_back().await?;
                Ok(problems.iter().map(ToString::to_string).collect())
            }
            Self::Sqlite(_) => Ok(Vec::new()),
        }
    }

    /// Why a relay with these settings neither makes nor drops segments, if it does not.
    pub async fn cannot_tend_segments(&self) -> Result<Option<String>, StoreError> {
        match self {
            Self::Postgres(store) => match store.tables() {
                Some(tables) => Ok(tables.cannot_tend_segments().await?.map(|error| error.to_string())),
                None => Ok(None),
            },
            Self::Sqlite(_) => Ok(None),
        }
    }

    /// The migrations of it that were not applied, and whether all were not: then there is none.
    pub async fn missing(&self) -> Result<(Vec<Migration>, bool), StoreError> {
        let store = self.store();
        let applied = store.applied().await?;
        let mut steps = store.migrations();
        steps.retain(|step| step.version >= FIRST_LOG_VERSION && !applied.contains(&step.version));
        Ok((steps, !applied.contains(&FIRST_LOG_VERSION)))
    }

    fn store(&self) -> &dyn Store {
        match self {
            Self::Postgres(store) => store,
            Self::Sqlite(store) => store,
        }
    }
}

/// Posthaste's own log in the configured schema, also where relays still serve the queue: for commands that move or look at it.
pub async fn native_log(database: &Database) -> anyhow::Result<NativeLog> {
    let log = any_native_log(database).await?;
    if let NativeLog::Postgres(store) = &log {
        store.refuse_pooler().await?;
    }
    Ok(log)
}

/// The same, whatever is in front of it, to ask whether a queue is all that there is.
pub async fn any_native_log(database: &Database) -> anyhow::Result<NativeLog> {
    if let Some(map) = database.table_map() {
        bail!(
            "database.map = {}: only Posthaste's own tables have a log beside the queue",
            map.name()
        );
    }
    match database.url() {
        DatabaseUrl::Postgres(url) => {
            let pool = pool::options(database).connect_lazy_with(postgres_options(&url)?);
            let schema = database.schema.as_deref().unwrap_or(DEFAULT_SCHEMA);
            let map = TableMap::native_log(schema).context("database.schema")?;
            Ok(NativeLog::Postgres(postgres_log(database, pool, map)?))
        }
        DatabaseUrl::Sqlite(path) => {
            let pool = sqlite_pool(database, &path, IfMissing::Refuse).await?;
            Ok(NativeLog::Sqlite(sqlite_log(database, pool)?))
        }
        url @ DatabaseUrl::MySql(_) => {
            bail!("database.url = {url}: Posthaste's own log is kept on PostgreSQL and SQLite only")
        }
    }
}

/// The log that relays serve by these settings; none where they serve something else.
pub async fn served_log(database: &Database) -> anyhow::Result<Option<NativeLog>> {
    match database.layout {
        Layout::Log => Ok(Some(any_native_log(database).await?)),
        Layout::Queue => Ok(None),
    }
}
