//! Applies verdicts: to the reader's memory, and where something failed to the table of failures.
//!
//! Verdicts are taken into memory first; what has to be written of them is written from there, at once or, where that did
//! not work, with the next call. So an error costs neither a verdict nor the reader's knowledge. What the table of failures
//! refuses stops its lane and no other, and is tried again ever more rarely until the cause is removed.

use std::collections::HashSet;
use std::time::Instant;

use posthaste_core::lifecycle::{EXHAUSTED, Settlement};
use posthaste_core::store::{RefusedVerdict, StoreErrorKind};
use posthaste_core::{MessageId, StoreError};
use posthaste_sql::RowChange;
use posthaste_sql::log::{Failure, Lane, Rewrite, Suspects};
use posthaste_sql::row_change::StatusLabel;
use sqlx::SqliteConnection;
use sqlx::types::Json;

use super::Inner;
use super::session::{Held, Retry, Session};
use crate::error::store_error;
use crate::rows::millis;
use crate::statements::Statement;
use crate::taking::is_refusal;

/// After so many refusals of what only waits, none of the rest is tried alone.
const MAX_REFUSALS_OF_WAITING: u32 = 32;

impl Session {
    /// Takes verdicts into memory; returns the ids that were not held.
    pub(super) fn apply(
        &mut self,
        settlements: &[Settlement],
        map: &posthaste_sql::TableMap,
        now: Instant,
    ) -> Vec<MessageId> {
        let mut lost = Vec::new();
        for settlement in settlements {
            let change = RowChange::of(&settlement.verdict, map);
            if let Some(row) = self.fresh_row(settlement.id, settlement.token) {
                self.fresh.remove(&settlement.id);
                self.asking.rows.insert(row, settlement.id);
                self.apply_fresh(row, change, now);
                continue;
            }
            let token = settlement.token;
            let retry = self.retries.get_mut(&settlement.id);
            match retry.filter(|retry| retry.token == token && retry.outcome.is_none()) {
                Some(_) if change.status.is_none() => drop(self.retries.remove(&settlement.id)),
                Some(retry) => {
                    let crashes = self.suspected.crashes_alone(retry.number);
                    retry.outcome = Some(counting(change, crashes));
                    self.asking.retries.insert(settlement.id);
                }
                None => lost.push(settlement.id),
            }
        }
        lost
    }

    /// A row of the log is never changed: what is no attempt is remembered, and a failure makes another row.
    fn apply_fresh(&mut self, row: i64, change: RowChange, now: Instant) {
        let window = &mut self.reader.window;
        match change.status {
            Some(StatusLabel::Delivered) => window.settle(row),
            status if status == Some(StatusLabel::Dead) || change.attempts > 0 => window.fail(Failure {
                id: row,
                delay: change.delay.unwrap_or_default(),
                dead: status == Some(StatusLabel::Dead),
                error: change.error,
            }),
            _ => window.put_back(row, change.delay.map(|delay| now + delay)),
        }
    }
}

/// The verdict of a failed row, with the tries that ended their readers.
fn counting(mut change: RowChange, crashes: u32) -> RowChange {
    if was_tried(&change) {
        let crashes = i32::try_from(crashes).unwrap_or(i32::MAX);
        change.attempts = change.attempts.saturating_add(crashes);
    }
    change
}

/// Whether a failed row was handed to the broker, and the relay is there to tell.
fn was_tried(change: &RowChange) -> bool {
    change.delivered || change.attempts > 0 || change.status == Some(StatusLabel::Dead)
}

impl Inner {
    /// Writes verdicts in a transaction of the caller's, as far as the table of failures takes them. Each try is undone where
    /// it is refused; then the halves are tried, until those are found which it is about.
    pub(super) async fn write_verdicts(
        &self,
        session: &Session,
        tx: &mut SqliteConnection,
        all: Vec<Unwritten>,
    ) -> sqlx::Result<Written> {
        let mut written = Written::default();
        let mut stopped: HashSet<Lane> = HashSet::new();
        // What only waits can go on waiting in memory, so it comes last, and there is no long search for the one that is refused.
        let (waiting, verdicts): (Vec<_>, Vec<_>) = all.into_iter().partition(Unwritten::only_waits);
        let mut refusals_of_waiting = 0;
        // The last is taken first.
        let mut batches = vec![waiting, verdicts];
        while let Some(batch) = batches.pop() {
            // What stands behind one that was refused is not written before it.
            let is_stopped = |verdict: &Unwritten| session.lane_of(verdict).is_some_and(|lane| stopped.contains(lane));
            let (behind, mut batch): (Vec<_>, Vec<_>) = batch.into_iter().partition(is_stopped);
            written.behind.extend(behind);
            let Some(first) = batch.first() else { continue };
            let only_waits = first.only_waits();
            let Some(error) = self.try_batch(session, tx, &batch).await? else {
                written.taken.extend(batch);
                continue;
            };
            refusals_of_waiting += u32::from(only_waits);
            if batch.len() == 1 || only_waits && refusals_of_waiting >= MAX_REFUSALS_OF_WAITING {
                let error = store_error(error).to_string();
                for verdict in batch {
                    stopped.extend(session.lane_of(&verdict).cloned());
                    written.refused.push((verdict, error.clone()));
                }
                continue;
            }
            let rest = batch.split_off(batch.len() / 2);
            batches.push(rest);
            batches.push(batch);
        }
        Ok(written)
    }

    /// Writes some, or nothing of them; then returns why they are refused. The driver's own savepoints stay when they are undone, and each
    /// makes the next ones slower.
    async fn try_batch(
        &self,
        session: &Session,
        tx: &mut SqliteConnection,
        batch: &[Unwritten],
    ) -> sqlx::Result<Option<sqlx::Error>> {
        sqlx::query("savepoint verdicts").execute(&mut *tx).await?;
        let refusal = match self.write_batch(tx, batch, &session.reader.suspects).await {
            Ok(()) => None,
            Err(error) if is_refused(&error) => {
                sqlx::query("rollback to verdicts").execute(&mut *tx).await?;
                Some(error)
            }
            Err(error) => return Err(error),
        };
        sqlx::query("release verdicts").execute(&mut *tx).await?;
        Ok(refusal)
    }

    pub(super) async fn write_batch(
        &self,
        conn: &mut SqliteConnection,
        batch: &[Unwritten],
        suspects: &Suspects,
    ) -> sqlx::Result<()> {
        let retried = || batch.iter().filter_map(Unwritten::retried);
        let delivered: Vec<i64> = retried()
            .filter(|row| row.change.delivered)
            .map(|row| row.number)
            .collect();
        if !delivered.is_empty() {
            let delete = sqlx::query(self.statements.failures.delete_delivered.sql()).bind(Json(&delivered));
            let deleted = delete.execute(&mut *conn).await?.rows_affected();
            // Others may have removed some.
            if deleted < delivered.len() as u64
                && self.count(conn, &self.statements.failures.left, &delivered).await? > 0
            {
                return Err(swallowed());
            }
        }
        let failed_again = |row: &Retried| {
            let change = &row.change;
            let dead = change.status == Some(StatusLabel::Dead);
            (
                row.number,
                i64::from(row.counted) + i64::from(change.attempts),
                change.error.clone(),
                change.delay.map(millis),
                dead,
            )
        };
        let failed: Vec<_> = retried()
            .filter(|row| !row.change.delivered)
            .map(failed_again)
            .collect();
        if !failed.is_empty() {
            let update = sqlx::query(self.statements.failures.retried.sql()).bind(Json(&failed));
            let changed = update.execute(&mut *conn).await?.rows_affected();
            if changed < failed.len() as u64 {
                let numbers: Vec<i64> = failed.iter().map(|(number, ..)| *number).collect();
                if self.count(conn, &self.statements.failures.left, &numbers).await? > changed {
                    return Err(swallowed());
                }
            }
        }
        let failure = |failure: &Failure| {
            // What only waits behind another one was not tried.
            let by_itself = failure.error.as_deref().is_some_and(|error| error != EXHAUSTED);
            let attempts = suspects.crashes_alone(failure.id).saturating_add(u32::from(by_itself));
            (
                failure.id,
                attempts,
                failure.error.clone(),
                millis(failure.delay),
                failure.dead,
            )
        };
        let failures: Vec<_> = batch.iter().filter_map(Unwritten::failure).map(failure).collect();
        if !failures.is_empty() {
            let insert = sqlx::query(self.statements.failures.fail.sql()).bind(Json(&failures));
            let inserted = insert.execute(&mut *conn).await?.rows_affected();
            if inserted < failures.len() as u64 {
                // Some were there, or are gone from the log.
                let numbers: Vec<i64> = failures.iter().map(|(number, ..)| *number).collect();
                if self.count(conn, &self.statements.failures.missing, &numbers).await? > 0 {
                    return Err(swallowed());
                }
            }
        }
        Ok(())
    }

    async fn count(&self, conn: &mut SqliteConnection, statement: &Statement, numbers: &[i64]) -> sqlx::Result<u64> {
        let count: i64 = sqlx::query_scalar(statement.sql())
            .bind(Json(numbers))
            .fetch_one(conn)
            .await?;
        Ok(count.cast_unsigned())
    }
}

/// A write was taken without an error, and the row is as it was, as after `raise(ignore)`.
pub(super) fn swallowed() -> sqlx::Error {
    let message =
        "the database took the write without an error, and the row is as it was: look for a trigger that swallows it";
    sqlx::Error::InvalidArgument(message.to_owned())
}

/// Whether the database objects to what was to be written, in words or without.
fn is_refused(error: &sqlx::Error) -> bool {
    is_refusal(error) || matches!(error, sqlx::Error::InvalidArgument(_))
}

/// A verdict that has to be written beside the log.
#[derive(Debug)]
pub(super) enum Unwritten {
    /// Of a row of the log.
    Failed(Failure),
    /// Of a row beside it.
    Retried(Retried),
}

/// What became of a failed row that was tried again.
#[derive(Debug)]
pub(super) struct Retried {
    pub(super) id: MessageId,
    pub(super) number: i64,
    /// The attempts before.
    pub(super) counted: u32,
    pub(super) change: RowChange,
}

impl Unwritten {
    fn only_waits(&self) -> bool {
        self.failure().is_some_and(Failure::only_waits)
    }

    fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Failed(failure) => Some(failure),
            Self::Retried(_) => None,
        }
    }

    fn retried(&self) -> Option<&Retried> {
        match self {
            Self::Failed(_) => None,
            Self::Retried(retried) => Some(retried),
        }
    }
}

/// What the table of failures took, and what it refused, with the reasons.
#[derive(Debug, Default)]
pub(super) struct Written {
    pub(super) taken: Vec<Unwritten>,
    refused: Vec<(Unwritten, String)>,
    /// What was not tried, because it stands behind one that was refused.
    behind: Vec<Unwritten>,
}

impl Session {
    /// What has to be written beside the log, and was not refused a moment ago: of rows there first.
    pub(super) fn unwritten(&self, now: Instant) -> Vec<Unwritten> {
        let due = |retry: &&Retry| retry.refused.is_none_or(|refused| refused.is_due(now));
        let retried = |(id, retry): (&MessageId, &Retry)| {
            let change = Some(retry).filter(due)?.outcome.clone()?;
            Some(Retried {
                id: *id,
                number: retry.number,
                counted: retry.counted,
                change,
            })
        };
        let mut retried: Vec<_> = self.retries.iter().filter_map(retried).collect();
        retried.sort_by_key(|row| row.number);
        let failures = self.reader.window.failures(now);
        let retried = retried.into_iter().map(Unwritten::Retried);
        retried.chain(failures.into_iter().map(Unwritten::Failed)).collect()
    }

    fn lane_of(&self, verdict: &Unwritten) -> Option<&Lane> {
        match verdict {
            Unwritten::Failed(failure) => self.reader.window.lane(failure.id),
            Unwritten::Retried(row) => self.retries.get(&row.id)?.lane.as_ref(),
        }
    }

    /// What a transaction has written is settled, once that is committed.
    pub(super) fn settle_taken(&mut self, taken: &[Unwritten]) {
        for failure in taken.iter().filter_map(Unwritten::failure) {
            if failure.only_waits() {
                self.reader.window.may_park();
            }
            self.reader.window.settle(failure.id);
        }
        let tried = taken.iter().filter_map(Unwritten::retried);
        for retried in tried.filter(|retried| was_tried(&retried.change)) {
            self.suspected.forget(retried.number);
        }
    }

    /// It is committed.
    pub(super) fn wrote(&mut self, written: Written, now: Instant) {
        for retried in written.taken.iter().filter_map(Unwritten::retried) {
            self.retries.remove(&retried.id);
            self.held_retries.remove(&retried.number);
            if retried.change.delivered {
                // Those behind it may go.
                self.retry_looks.soon(now);
            }
        }
        self.refuse(written.refused, now);
        let behind = written.behind.iter().filter_map(Unwritten::failure);
        for failure in behind.filter(|failure| failure.only_waits()) {
            self.reader.window.keep_waiting(failure, now);
        }
    }

    /// Verdicts of the call that is asking are the caller's again, and their rows come again for them. Others, whose
    /// caller was told that they are remembered, are, and are named the first time only.
    fn refuse(&mut self, refused: Vec<(Unwritten, String)>, now: Instant) {
        for (verdict, error) in refused {
            match verdict {
                Unwritten::Failed(failure) => {
                    let (row, window) = (failure.id, &mut self.reader.window);
                    if failure.only_waits() {
                        if window.keep_waiting(&failure, now) {
                            say_refused(row, &error);
                        }
                    } else if let Some(id) = self.asking.rows.get(&row) {
                        window.refuse_verdict(row, now);
                        self.refusals.push(refusal(*id, &error));
                    } else if window.refuse_failure(row, now) {
                        say_refused(row, &error);
                    }
                }
                Unwritten::Retried(row) if self.asking.retries.contains(&row.id) => {
                    self.hold_retry(row.id, now);
                    self.refusals.push(refusal(row.id, &error));
                }
                Unwritten::Retried(row) => {
                    let Some(retry) = self.retries.get_mut(&row.id) else {
                        continue;
                    };
                    if retry.refused.replace(Rewrite::after(retry.refused, now)).is_none() {
                        say_refused(row.number, &error);
                    }
                }
            }
        }
    }

    /// Takes a failed row back whose verdict was refused; it is handed out again after a while.
    fn hold_retry(&mut self, id: MessageId, now: Instant) {
        let Some(retry) = self.retries.remove(&id) else { return };
        let before = self.held_retries.get(&retry.number).map(|held| held.until);
        let held = Held {
            until: Rewrite::after(before, now),
            lane: retry.lane,
        };
        self.held_retries.insert(retry.number, held);
    }
}

fn say_refused(row: i64, error: &str) {
    tracing::error!(
        row,
        error,
        "a verdict was refused; it is remembered, and tried again until the cause is removed"
    );
}

fn refusal(id: MessageId, error: &str) -> RefusedVerdict {
    RefusedVerdict {
        id,
        error: StoreError {
            kind: StoreErrorKind::Other,
            message: format!("the table of failures does not take this event, so its lane stands still: {error}"),
            remedy: Some("remove the cause; it is written down by itself then, and not sent again"),
            source: None,
        },
    }
}
