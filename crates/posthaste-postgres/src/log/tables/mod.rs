//! Upkeep of the tables of Posthaste's own log: segments, shards, and the move from the queue.
//!
//! What may be done when is decided by functions of the schema, in `migrations/log/`; here they are called, in the right
//! order and each in a transaction of its own.

mod generations;
mod moving;
mod segments;

use std::sync::Arc;
use std::time::Duration;

use posthaste_core::StoreError;
use posthaste_core::store::StoreErrorKind;
use posthaste_sql::TableMap;
use posthaste_sql::template::{TemplateError, render};
use sqlx::{PgPool, Postgres, Transaction};

pub use generations::Connections;
pub use moving::{MovePlan, MoveProgress, MoveStep, QueueMove, Unfit};
pub use segments::SegmentUpkeep;

use super::statements::LogStatement;
use crate::dialect::PostgresDialect;
use crate::error::store_error;
use crate::pooling;
use crate::table_locks::BEGIN_BOUNDED;

posthaste_sql::statements! {
    LogStatement in "../../../queries/log/tables/";
    /// For segments.
    segments: Segments => {
        lock_segments, ready_segments, rotate_segment, make_segments, settle_segments, old_segments, dropped_segment,
        forget_discarded, count_old_segments, first_segment, not_owner,
    }
    /// For the move from the queue.
    moving: Moving => {
        move_plan, move_progress, unfit, lock_move, fence_queue, unfence_queue, move_batch, redirect_queue,
    }
    /// For shards.
    shards: Shards => { make_shards, use_shards, newest_generation, connections, writers }
}

/// When rows go on to a new segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SegmentLimits {
    /// The age at which a segment that has rows is closed. Defaults to 1 h.
    pub age: Duration,
    /// The rows with which it is closed before. Defaults to 5,000,000.
    pub rows: u64,
}

impl Default for SegmentLimits {
    fn default() -> Self {
        Self {
            age: Duration::from_hours(1),
            rows: 5_000_000,
        }
    }
}

impl SegmentLimits {
    /// Sets [`SegmentLimits::age`].
    #[must_use]
    pub fn age(mut self, age: Duration) -> Self {
        self.age = age;
        self
    }

    /// Sets [`SegmentLimits::rows`].
    #[must_use]
    pub fn rows(mut self, rows: u64) -> Self {
        self.rows = rows;
        self
    }
}

/// The tables of Posthaste's own log in a schema. Cheap to clone.
///
/// # Examples
/// ```no_run
/// use std::time::Duration;
///
/// use posthaste_postgres::LogTables;
///
/// # async fn example(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
/// let tables = LogTables::in_schema(pool, "posthaste")?;
/// // What a relay does by itself, every few seconds.
/// let upkeep = tables.tend_segments(Some(Duration::from_hours(24 * 7))).await?;
/// println!("{} segments were dropped", upkeep.dropped);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct LogTables {
    pool: PgPool,
    /// Quoted.
    schema: String,
    statements: Arc<Statements>,
    limits: SegmentLimits,
}

impl LogTables {
    /// Those of a schema. Nothing is looked at yet.
    ///
    /// # Errors
    /// If it is no name that PostgreSQL could have.
    pub fn in_schema(pool: PgPool, schema: &str) -> Result<Self, StoreError> {
        // The log's statements name the schema only, which the map of the queue has as well.
        let map = TableMap::in_schema(schema).map_err(StoreError::other)?;
        let quoted = map.schema().map(|schema| schema.quoted('"')).unwrap_or_default();
        Ok(Self {
            pool,
            schema: quoted,
            statements: Arc::new(Statements::finish(&map)?),
            limits: SegmentLimits::default(),
        })
    }

    /// Says when rows go on to a new segment.
    #[must_use]
    pub fn limits(mut self, limits: SegmentLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Every statement, by name.
    pub(crate) fn texts(&self) -> Vec<(&'static str, String)> {
        self.statements.texts()
    }

    /// A transaction in which no lock is waited for without end.
    async fn begin(&self, how: &'static str) -> Result<Transaction<'static, Postgres>, StoreError> {
        pooling::begin(&self.pool, how).await.map_err(store_error)
    }

    async fn begin_bounded(&self) -> Result<Transaction<'static, Postgres>, StoreError> {
        self.begin(BEGIN_BOUNDED).await
    }
}

/// The error of a step that makes triggers, sequences or partitions. No right that could be granted is enough for that, whatever
/// the server says is denied.
fn by_owner(error: sqlx::Error) -> StoreError {
    let error = store_error(error);
    match error.kind {
        StoreErrorKind::Access => StoreError {
            remedy: Some(
                "run it as the owner of the log's tables, which is the role that ran `posthaste migrate up`, or as a member of it",
            ),
            ..error
        },
        _ => error,
    }
}

impl Statements {
    fn finish(map: &TableMap) -> Result<Self, TemplateError> {
        Self::render(map, |file, map| {
            Ok(LogStatement::new(render(file, map, &PostgresDialect)?))
        })
    }
}
