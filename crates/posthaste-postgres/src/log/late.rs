//! The net for rows that come after their ids were passed over: found late, and delivered from the table of failures.

use std::time::{Duration, Instant};

use posthaste_core::StoreError;
use posthaste_sql::log::{ClosedGaps, Failure, Probe, Ranges};
use sqlx::{PgConnection, Row};

use super::error::LogResult;
use super::rows::lane;
use super::session::Session;
use super::state::Start;
use super::statements::Cursors;
use super::{PostgresLogStore, Reader, of_segments};
use crate::rows::millis;

/// Most rows that one look at closed ids takes.
const PROBE_LIMIT: usize = 1_000;

/// How many ids below the cursor a new reader looks through.
const SPAN_BELOW_CURSOR: i64 = 250_000;

/// Most gaps that a new reader looks into.
const MAX_MISSING: i64 = 100_000;

/// An earlier reader has found what came before this, counted back from the last move of the cursor: that one looked at
/// least every ten minutes.
const UNSEEN_FOR: Duration = Duration::from_mins(15);

/// Most rows that a new reader takes for late. More of them were not written late but all anew, as when a table is restored.
const MAX_UNSEEN: usize = 1_000;

/// How often it is said that rows come late.
const SAY_INTERVAL: Duration = Duration::from_mins(1);

impl Reader {
    /// What an earlier reader, of whose memory only the start is left, may have left behind: the ids that it read past and
    /// that no row has, and the rows that came there while no relay looked. What it left open is read anyway. From the
    /// transaction `new_from` on all are new.
    pub(super) async fn left_behind(
        &self,
        connection: &mut PgConnection,
        start: &Start,
        new_from: Option<&str>,
        now: Instant,
    ) -> LogResult<ClosedGaps> {
        let mut closed = ClosedGaps::kept_for(self.options.probe_closed_for);
        let Some(statements) = self.statements.cursors.as_ref() else {
            return Ok(closed);
        };
        if self.options.probe_closed_for.is_zero() {
            return Ok(closed);
        }
        // In this order: a row that comes in between is in both, and not in neither.
        let mut missing = Self::missing(statements, connection, start.state.hi).await?;
        let mut unseen = match Self::unseen(statements, connection, start, new_from).await {
            Err(error) if error.is_refusal() => {
                let error = StoreError::from(error);
                tracing::warn!(%error, "rows that came below the cursor while no relay read cannot be looked for");
                Ranges::default()
            }
            unseen => unseen?,
        };
        for id in unseen.iter().flatten() {
            missing.remove(id);
        }
        for open in start.state.open.iter() {
            missing.remove_range(open.clone());
            unseen.remove_range(open);
        }
        closed.add(&missing, now);
        closed.add_left_behind(unseen, now);
        Ok(closed)
    }

    /// The ids up to the cursor that no row has.
    async fn missing(statements: &Cursors, connection: &mut PgConnection, cursor: i64) -> LogResult<Ranges> {
        let rows = sqlx::query(statements.missing.sql())
            .bind(cursor)
            .bind(SPAN_BELOW_CURSOR)
            .bind(MAX_MISSING)
            .fetch_all(connection)
            .await?;
        let mut missing = Ranges::default();
        for row in &rows {
            missing.insert(row.try_get("first_id")?..=row.try_get("last_id")?);
        }
        Ok(missing)
    }

    /// Rows that came after the cursor had passed their ids, and that an earlier reader may not have found.
    async fn unseen(
        statements: &Cursors,
        connection: &mut PgConnection,
        start: &Start,
        new_from: Option<&str>,
    ) -> LogResult<Ranges> {
        let cursor = start.state.hi;
        let rows = sqlx::query(statements.unseen.sql())
            .bind(cursor)
            .bind(SPAN_BELOW_CURSOR)
            .bind(millis(UNSEEN_FOR))
            .bind(i64::try_from(MAX_UNSEEN).unwrap_or(i64::MAX))
            .bind(new_from)
            .bind(start.written_by.as_deref())
            .fetch_all(connection)
            .await?;
        let mut unseen = Ranges::default();
        for row in &rows {
            let id = row.try_get("id")?;
            unseen.insert(id..=id);
        }
        let found: i64 = rows.first().map_or(Ok(0), |row| row.try_get("found"))?;
        if usize::try_from(found).is_ok_and(|found| found > MAX_UNSEEN) {
            tracing::error!(
                rows = found,
                highest = unseen.iter().last().map(|range| *range.end()),
                cursor,
                "so many rows below the cursor are newer than it that the table was restored or rewritten rather than written \
                 late; they are not delivered; if they should be, append a row with a lower position to the cursor's \
                 table and start the relay again"
            );
            return Ok(Ranges::default());
        }
        Ok(unseen)
    }

    /// A row whose id was closed goes to the table of failures, from where it is delivered: the cursor is past it, and
    /// must not go back.
    pub(super) async fn probe_closed(&self, session: &mut Session, now: Instant) -> LogResult<()> {
        let Some(ids) = session.reader.closed.due(now) else {
            return Ok(());
        };
        let (first, last): (Vec<i64>, Vec<i64>) = ids.iter().map(|range| (*range.start(), *range.end())).unzip();
        let query = sqlx::query(self.statements.reading.probe.sql())
            .bind(first)
            .bind(last)
            .bind(i64::try_from(PROBE_LIMIT).unwrap_or(i64::MAX));
        let rows = of_segments(query, self.shard.as_ref(), self.first_segment_of(session).await?)
            .fetch_all(session.connection()?)
            .await?;
        let mut found = Vec::new();
        let mut again = rows.len() >= PROBE_LIMIT;
        for row in &rows {
            let id: i64 = row.try_get("id")?;
            // Those before it in its lane go first, if they are still here.
            let waits = lane(row)?.is_some_and(|lane| session.reader.window.is_behind(id, &lane));
            if waits {
                again = true;
            } else {
                found.push(Failure::parked(id));
            }
        }
        let look = Probe {
            again,
            ..self.write_late(session, found).await?
        };
        if !look.taken.is_empty() {
            session.late.unsaid += look.taken.len() as u64;
            session.retry_looks.soon(now);
        }
        session.reader.closed.probed(now, &look);
        session.say_late(now, look.taken.first().copied());
        Ok(())
    }

    /// Writes late rows down, all but those that the database refuses.
    async fn write_late(&self, session: &mut Session, found: Vec<Failure>) -> LogResult<Probe> {
        let ids = |batch: &[Failure]| batch.iter().map(|failure| failure.id).collect::<Vec<_>>();
        let mut look = Probe::default();
        let mut batches = vec![found];
        while let Some(mut batch) = batches.pop() {
            if batch.is_empty() {
                continue;
            }
            match self.write_failures(session, &batch).await {
                Ok(_) => look.taken.extend(ids(&batch)),
                Err(error) if !error.is_refusal() => return Err(error),
                Err(error) if batch.len() == 1 || error.concerns_all_rows() => {
                    let numbers: Vec<_> = batch.iter().map(|failure| failure.id.to_string()).collect();
                    tracing::error!(
                        ids = numbers.join(", "),
                        error = %StoreError::from(error),
                        "rows came after their ids were passed over, and the table of failures does not take them"
                    );
                    look.refused.extend(ids(&batch));
                }
                Err(_) => {
                    let rest = batch.split_off(batch.len() / 2);
                    // The last is taken first.
                    batches.push(rest);
                    batches.push(batch);
                }
            }
        }
        Ok(look)
    }
}

impl Session {
    fn say_late(&mut self, now: Instant, example: Option<i64>) {
        let quiet = self
            .late
            .said_at
            .is_some_and(|said| now.duration_since(said) < SAY_INTERVAL);
        let Some(id) = example.filter(|_| !quiet) else {
            return;
        };
        tracing::error!(
            rows = std::mem::take(&mut self.late.unsaid),
            id,
            "rows came into the log after their ids were passed over: ids are taken in another transaction than the \
             insert's, so these rows are delivered late, maybe out of order and maybe again after a restart; let the \
             database give the id at the insert (IDENTITY, or no column for it), or call nextval in the same transaction \
             (allocationSize = 1) on a sequence that the column owns"
        );
        self.late.said_at = Some(now);
    }

    /// Says that ids are given up before their time: at first, and whenever they have become twice as many.
    pub(super) fn say_dropped(&mut self) {
        let dropped = self.reader.closed.dropped_early();
        if dropped > 2 * self.late.dropped {
            tracing::warn!(
                ids = dropped,
                "more ids were rolled back than are looked at again, so the oldest are not any more; a row that gets one of \
                 them now is not found"
            );
            self.late.dropped = dropped;
        }
    }
}

impl PostgresLogStore {
    /// How many rows of the log are looked for though their ids were closed; `None` if this store does not read.
    #[doc(hidden)]
    pub async fn closed_ids(&self) -> Option<u64> {
        let mut closed = None;
        for reader in self.readers.all() {
            if let Some(session) = reader.lock.lock().await.session() {
                closed = Some(closed.unwrap_or(0) + session.reader.closed.count());
            }
        }
        closed
    }
}
