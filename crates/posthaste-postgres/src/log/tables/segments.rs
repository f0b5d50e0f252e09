//! Segments: made ahead, opened in turn, dropped when all of their rows are settled and old.
//!
//! It is done in small steps that each hold for themselves, on a connection that waits for no lock for long. Whatever fails, rows
//! go on into the current segment.

use std::sync::Arc;
use std::time::Duration;

use posthaste_core::StoreError;
use posthaste_core::store::StoreErrorKind;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgConnection, Row};

use super::{LogTables, Segments as Queries};
use crate::error::store_error;
use crate::rows::millis;

/// Segments that stand ready behind the current one. A transaction that stays open keeps newer ones from being opened, so this is
/// how often rows can go on to a new one beside it.
const AHEAD: i32 = 4;

/// Steps wait for no lock for longer. Those that they ask for keep no writer out, but they wait for maintenance by others.
const SESSION: &str = "set lock_timeout = '500ms'; set default_transaction_isolation = 'read committed'";

/// But for a segment that goes, which waits for all that may still see it, and keeps nobody waiting meanwhile: between
/// transactions that last a second or two there may never be a shorter time.
const DROPPING: &str = "set lock_timeout = '5s'";

/// The version from which on a partition is detached without locking writers out.
const DETACHES_CONCURRENTLY: u32 = 140_000;

/// What a round of looking after segments has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SegmentUpkeep {
    /// Segments that were made.
    pub made: u32,
    /// Whether rows go to a new segment.
    pub rotated: bool,
    /// Whether they should, but a transaction at work does not know the next one yet.
    pub held_up: bool,
    /// Segments that were dropped.
    pub dropped: u32,
    /// The rows that were in them.
    pub rows: u64,
    /// Segments that stay for now because a transaction still uses them, or may.
    pub in_use: u32,
}

/// A segment that may be dropped.
#[derive(Debug)]
struct OldSegment {
    segment: i64,
    rows: i64,
    is_attached: bool,
    /// Whether detaching it was begun.
    is_pending: bool,
}

impl LogTables {
    /// Makes, opens and drops segments as far as that is due, the last `retention` after they were settled, and not without one.
    /// Does nothing while another process does. The relay calls it by itself.
    ///
    /// # Errors
    /// Those of the database. What was done before stays; rows go on into the current segment in any case.
    pub async fn tend_segments(&self, retention: Option<Duration>) -> Result<SegmentUpkeep, StoreError> {
        let mut connection = self.pool.connect_options().connect().await.map_err(store_error)?;
        let mut upkeep = Upkeep {
            tables: self,
            queries: &self.statements.segments,
            connection: &mut connection,
            done: SegmentUpkeep::default(),
        };
        let tended = upkeep.tend(retention).await;
        let done = upkeep.done;
        // The lock ends with it, but a little later than it seems: whoever comes next would find it taken.
        drop(
            sqlx::raw_sql("select pg_advisory_unlock_all()")
                .execute(&mut connection)
                .await,
        );
        drop(connection.close().await);
        tended.map_err(|error| for_the_owner(store_error(error)))?;
        Ok(done)
    }

    /// Why this role makes and drops no segments, if it does not: it is no member of the role that owns the log. A relay goes on
    /// without it.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn cannot_tend_segments(&self) -> Result<Option<StoreError>, StoreError> {
        let owner: Option<String> = sqlx::query_scalar(self.statements.segments.not_owner.sql())
            .fetch_optional(&self.pool)
            .await
            .map_err(store_error)?;
        let refusal = |owner: String| StoreError {
            kind: StoreErrorKind::Access,
            message: format!("this role is not the owner of the log and no member of it ({owner})"),
            remedy: None,
            source: None,
        };
        Ok(owner.map(|owner| for_the_owner(refusal(owner))))
    }

    /// The first segment that may have rows which are not settled; see the file.
    pub(crate) fn first_segment_query(&self) -> AssertSqlSafe<Arc<str>> {
        self.statements.segments.first_segment.sql()
    }

    /// How many rows the segments have that would be dropped.
    pub(crate) async fn rows_of_old_segments(&self, retention: Duration) -> Result<u64, StoreError> {
        let rows: i64 = sqlx::query_scalar(self.statements.segments.count_old_segments.sql())
            .bind(millis(retention))
            .fetch_one(&self.pool)
            .await
            .map_err(store_error)?;
        Ok(rows.cast_unsigned())
    }
}

/// No grant is enough for what is missing.
fn for_the_owner(mut error: StoreError) -> StoreError {
    if error.kind == StoreErrorKind::Access {
        error.remedy = Some(
            "segments of the log are made and dropped by its owner: grant the role that ran the migrations to that of one relay at \
             least; until then no segment is opened or dropped, whatever relay.retention says",
        );
    }
    error
}

/// One round.
struct Upkeep<'a> {
    tables: &'a LogTables,
    queries: &'a Queries,
    connection: &'a mut PgConnection,
    done: SegmentUpkeep,
}

impl Upkeep<'_> {
    async fn tend(&mut self, retention: Option<Duration>) -> sqlx::Result<()> {
        sqlx::raw_sql(SESSION).execute(&mut *self.connection).await?;
        let locked: bool = sqlx::query_scalar(self.queries.lock_segments.sql())
            .fetch_one(&mut *self.connection)
            .await?;
        if !locked {
            return Ok(());
        }
        self.rotate().await?;
        // An index is made on the way, which waits for a vacuum of the segment.
        let settled = sqlx::query(self.queries.settle_segments.sql())
            .execute(&mut *self.connection)
            .await;
        if !is_contention(&settled) {
            settled?;
        }
        match retention {
            Some(retention) => self.drop_old(retention).await,
            None => Ok(()),
        }
    }

    /// Each step is a transaction of its own: a segment may be opened when all can see that it is there.
    async fn rotate(&mut self) -> sqlx::Result<()> {
        let limits = self.tables.limits;
        self.ready().await?;
        let outcome: String = sqlx::query_scalar(self.queries.rotate_segment.sql())
            .bind(millis(limits.age))
            .bind(i64::try_from(limits.rows).unwrap_or(i64::MAX))
            .fetch_one(&mut *self.connection)
            .await?;
        self.done.rotated = outcome == "rotated";
        self.done.held_up = outcome == "not ready";
        let made = sqlx::query_scalar::<_, i32>(self.queries.make_segments.sql())
            .bind(AHEAD)
            .fetch_one(&mut *self.connection)
            .await;
        if !is_contention(&made) {
            self.done.made = made?.cast_unsigned();
        }
        self.ready().await
    }

    async fn ready(&mut self) -> sqlx::Result<()> {
        let ready = sqlx::query(self.queries.ready_segments.sql());
        ready.execute(&mut *self.connection).await.map(drop)
    }

    async fn drop_old(&mut self, retention: Duration) -> sqlx::Result<()> {
        let old = sqlx::query(self.queries.old_segments.sql())
            .bind(millis(retention))
            .fetch_all(&mut *self.connection)
            .await?;
        let old = old.iter().map(|row| {
            Ok(OldSegment {
                segment: row.try_get("segment")?,
                rows: row.try_get("row_count")?,
                is_attached: row.try_get("is_attached")?,
                is_pending: row.try_get("is_pending")?,
            })
        });
        let mut old = old.collect::<sqlx::Result<Vec<_>>>()?;
        // Only one at a time can be on its way out.
        old.sort_by_key(|old| !old.is_pending);
        if self.detaches_concurrently() {
            sqlx::raw_sql(DROPPING).execute(&mut *self.connection).await?;
        }
        for old in old {
            let dropped = self.drop_one(&old).await;
            if is_contention(&dropped) {
                self.done.in_use += 1;
                // The others would be refused while this one is on its way.
                return Ok(());
            }
            dropped?;
            self.done.dropped += 1;
            self.done.rows += old.rows.cast_unsigned();
        }
        if self.done.dropped > 0 {
            let forget = sqlx::query(self.queries.forget_discarded.sql());
            forget.execute(&mut *self.connection).await?;
        }
        Ok(())
    }

    fn detaches_concurrently(&self) -> bool {
        let version = self.connection.server_version_num();
        version.is_some_and(|version| version >= DETACHES_CONCURRENTLY)
    }

    /// Detaches it, without locking writers out where the server can, and drops it. Cut short, it is gone on with the next
    /// time.
    async fn drop_one(&mut self, old: &OldSegment) -> sqlx::Result<()> {
        let schema = &self.tables.schema;
        let (log, segment) = (format!("{schema}.log"), format!("{schema}.log_{}", old.segment));
        if old.is_attached {
            let how = match (old.is_pending, self.detaches_concurrently()) {
                (true, _) => "finalize",
                (false, true) => "concurrently",
                (false, false) => "",
            };
            self.run(format!("alter table {log} detach partition {segment} {how}"))
                .await?;
        }
        self.run(format!("drop table if exists {segment}")).await?;
        let dropped = sqlx::query(self.queries.dropped_segment.sql()).bind(old.segment);
        dropped.execute(&mut *self.connection).await.map(drop)
    }

    /// Safe because all that is put in are quoted names and numbers. As a statement of its own: it may be in no transaction.
    async fn run(&mut self, sql: String) -> sqlx::Result<()> {
        let run = sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut *self.connection);
        run.await.map(drop)
    }
}

/// Whether a lock was in the way, which may be gone the next time.
fn is_contention<T>(done: &sqlx::Result<T>) -> bool {
    let Err(sqlx::Error::Database(error)) = done else {
        return false;
    };
    let kind = crate::error::by_sqlstate(error.code().as_deref().unwrap_or_default()).0;
    kind == StoreErrorKind::Contention
}
