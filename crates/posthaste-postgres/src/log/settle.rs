//! Applies verdicts: to the reader's memory, and where something failed to the table of failures.
//!
//! Verdicts are taken into memory first; what has to be written of them is written from there, at once or, where that did
//! not work, with the next call. So an error costs neither a verdict nor the reader's knowledge. What the database refuses
//! stops its lane, and is tried again ever more rarely until the cause is removed. A row that another transaction
//! has locked keeps no others waiting. Rows that were not tried are a matter of [`super::parking`].

use std::collections::HashSet;
use std::time::Instant;

use posthaste_core::lifecycle::{EXHAUSTED, Settlement, Verdict};
use posthaste_core::store::{BusyRow, RefusedVerdict};
use posthaste_core::{MessageId, StoreError};
use posthaste_sql::log::{Failure, Lane, Rewrite};
use posthaste_sql::row_change::StatusLabel;
use posthaste_sql::table::Table;
use posthaste_sql::{RowChange, TableMap};
use sqlx::Row;

use super::error::{LogError, LogResult};
use super::parking::{keep_behind, pieces};
use super::rows::{failed_id, failed_number};
use super::session::Session;
use super::{Reader, of_segments};
use crate::rows::millis;
use crate::table_locks::find_table_lock;

impl Session {
    /// Takes verdicts into memory; returns the ids that were not held.
    pub(super) fn apply(&mut self, settlements: &[Settlement], map: &TableMap, now: Instant) -> Vec<MessageId> {
        let mut lost = Vec::new();
        for settlement in settlements {
            let (id, token) = (settlement.id, settlement.token);
            let delivered = settlement.verdict == Verdict::Delivered;
            if delivered && id.number().is_some_and(|row| self.reader.window.deliver(row, token)) {
                self.unstored = self.unstored.saturating_add(1);
                continue;
            }
            let held = |row: &i64| self.reader.window.is_held(*row, token);
            let retried = |row: &i64| self.is_retried(*row, token);
            let change = RowChange::of(&settlement.verdict, map);
            if let Some(row) = id.number().filter(held) {
                self.apply_fresh(row, change, now);
            } else if let Some(row) = failed_number(id).filter(retried) {
                self.apply_retried(row, change);
            } else {
                lost.push(id);
            }
        }
        lost
    }

    /// A row of the log cannot be changed: what is no attempt is remembered, and a failure makes another row.
    fn apply_fresh(&mut self, row: i64, change: RowChange, now: Instant) {
        let window = &mut self.reader.window;
        match change.status {
            Some(StatusLabel::Delivered) => window.settle(row),
            // Whatever the table counts, what is given up has failed.
            status if status == Some(StatusLabel::Dead) || change.attempts > 0 => window.fail(Failure {
                id: row,
                delay: change.delay.unwrap_or_default(),
                dead: status == Some(StatusLabel::Dead),
                error: change.error,
            }),
            _ => window.put_back(row, change.delay.map(|delay| now + delay)),
        }
    }

    fn apply_retried(&mut self, row: i64, mut change: RowChange) {
        if change.status.is_none() {
            self.retries.remove(&row);
        } else if let Some(retry) = self.retries.get_mut(&row) {
            if was_tried(&change) {
                // With the tries that ended their readers.
                let crashes = i32::try_from(self.suspected.crashes_alone(row)).unwrap_or(i32::MAX);
                change.attempts = change.attempts.saturating_add(crashes);
            }
            retry.outcome = Some(change);
        }
    }
}

/// Whether a failed row was handed to the broker, and the relay is there to tell.
fn was_tried(change: &RowChange) -> bool {
    change.delivered || change.attempts > 0 || change.status == Some(StatusLabel::Dead)
}

impl Session {
    /// Whether verdicts have to be written down.
    pub(super) fn has_unwritten(&self) -> bool {
        self.reader.window.has_failed() || self.retries.values().any(|retry| retry.outcome.is_some())
    }

    /// Takes a failed row back whose verdict was refused; it is handed out again after a while.
    fn hold_retry(&mut self, row: i64, now: Instant) {
        let Some(retry) = self.retries.remove(&row) else { return };
        let before = self.held_retries.get(&row).map(|(before, _)| *before);
        self.held_retries.insert(row, (Rewrite::after(before, now), retry.lane));
    }
}

/// What could not be written down.
#[derive(Debug, Default)]
pub(super) struct Unwritten {
    pub(super) refused: Vec<RefusedVerdict>,
    /// Failed rows that another transaction has locked. Their verdicts are the caller's again.
    pub(super) busy: Vec<BusyRow>,
}

impl Reader {
    /// Writes down what verdicts say, as far as the database takes it; returns what it does not. After an error nothing is
    /// forgotten.
    ///
    /// Verdicts of the `asking` call that are refused are the caller's again, and their rows come again for them. Others,
    /// whose caller was told that they are remembered, are, and are named here the first time only.
    pub(super) async fn flush(
        &self,
        session: &mut Session,
        asking: &[Settlement],
        now: Instant,
    ) -> LogResult<Unwritten> {
        if !session.has_unwritten() {
            return Ok(Unwritten::default());
        }
        let asking: HashSet<MessageId> = asking.iter().map(|settlement| settlement.id).collect();
        let mut unwritten = self.flush_retried(session, &asking, now).await?;
        let (waiting, failed) = self.part_failures(&session.reader.window, now);
        let refused = self.flush_failures(session, &failed, &asking, now).await?;
        unwritten.refused.extend(refused);
        let refused = self.flush_waiting(session, &waiting, now).await?;
        unwritten.refused.extend(refused);
        Ok(unwritten)
    }

    /// Writes rows that were tried and failed, and with them those that have to be written in order with these.
    async fn flush_failures(
        &self,
        session: &mut Session,
        failures: &[Failure],
        asking: &HashSet<MessageId>,
        now: Instant,
    ) -> LogResult<Vec<RefusedVerdict>> {
        let mut refused = Vec::new();
        let mut stopped: HashSet<Lane> = HashSet::new();
        let mut batches = pieces(failures);
        while let Some(mut batch) = batches.pop() {
            keep_behind(&mut session.reader.window, &mut batch, &stopped, now);
            if batch.is_empty() {
                continue;
            }
            let written = self.write_failures(session, &batch).await;
            let locked = self.are_locked(session, &written, batch.len()).await?;
            match written {
                Ok(_) => {
                    for failure in &batch {
                        session.reader.window.settle(failure.id);
                    }
                    if batch.iter().any(Failure::only_waits) {
                        session.reader.window.may_park();
                    }
                }
                Err(error) if !error.is_refusal() && !error.is_contention() => return Err(error),
                Err(error) if locked || batch.len() == 1 || error.concerns_all_rows() => {
                    let error = StoreError::from(error).to_string();
                    for failure in &batch {
                        let window = &mut session.reader.window;
                        stopped.extend(window.lane(failure.id).cloned());
                        let id = MessageId::from(failure.id);
                        let is_news = if asking.contains(&id) && !locked {
                            window.refuse_verdict(failure.id, now);
                            true
                        } else if failure.only_waits() {
                            window.keep_waiting(failure, now)
                        } else {
                            window.refuse_failure(failure.id, now)
                        };
                        if is_news && locked {
                            say_locked(failure.id, &error);
                        } else if is_news {
                            refused.push(refusal(id, &error));
                        }
                    }
                }
                Err(_) => {
                    let rest = batch.split_off(batch.len() / 2);
                    // The last is taken first.
                    batches.push(rest);
                    batches.push(batch);
                }
            }
        }
        Ok(refused)
    }

    /// Whether it is known whose lock was in the way of so many rows: that of the only one, or one on the whole table. Else
    /// each of them has to be tried.
    async fn are_locked<T>(&self, session: &mut Session, written: &LogResult<T>, rows: usize) -> LogResult<bool> {
        if !written.as_ref().is_err_and(LogError::is_contention) {
            return Ok(false);
        }
        Ok(rows == 1
            || find_table_lock(session.connection()?, &self.map, &[Table::Failed])
                .await
                .is_some())
    }

    /// Writes rows of the log to the table of failures, in order; returns their numbers there.
    pub(super) async fn write_failures(&self, session: &mut Session, failures: &[Failure]) -> LogResult<Vec<i64>> {
        let suspects = &session.reader.suspects;
        // Posthaste's own log counts tries, of which this was the first unless the row only waits behind another, or was
        // tried before by readers that crashed.
        let tried = |failure: &Failure| {
            let crashes = i64::from(suspects.crashes_alone(failure.id));
            let by_itself = failure.error.as_deref() != Some(EXHAUSTED);
            crashes + i64::from((failure.dead || failure.error.is_some()) && by_itself)
        };
        let retries = |failure: &Failure| match failure.dead {
            _ if self.is_native() => tried(failure),
            true => i64::from(self.options.max_retries),
            false => i64::from(suspects.crashes_alone(failure.id)),
        };
        let query = sqlx::query(self.statements.failures.fail.sql())
            .bind(failures.iter().map(|failure| failure.id).collect::<Vec<_>>())
            .bind(failures.iter().map(retries).collect::<Vec<_>>())
            .bind(
                failures
                    .iter()
                    .map(|failure| failure.error.as_deref())
                    .collect::<Vec<_>>(),
            )
            .bind(failures.iter().map(|failure| millis(failure.delay)).collect::<Vec<_>>())
            .bind(failures.iter().map(|failure| failure.dead).collect::<Vec<_>>());
        let rows = of_segments(query, self.shard.as_ref(), self.first_segment_of(session).await?)
            .fetch_all(session.connection()?)
            .await?;
        // What was read before may stand behind these.
        session.tail.clear();
        let numbers = rows.iter().map(|row| row.try_get("id"));
        Ok(numbers.collect::<sqlx::Result<_>>()?)
    }

    async fn flush_retried(
        &self,
        session: &mut Session,
        asking: &HashSet<MessageId>,
        now: Instant,
    ) -> LogResult<Unwritten> {
        let due = |retry: &super::session::Retry| retry.refused.is_none_or(|refused| refused.is_due(now));
        let mut rows: Vec<(i64, RowChange)> = session
            .retries
            .iter()
            .filter(|(_, retry)| due(retry))
            .filter_map(|(row, retry)| Some((*row, retry.outcome.clone()?)))
            .collect();
        rows.sort_by_key(|(row, _)| *row);
        let mut unwritten = Unwritten::default();
        let mut batches = vec![rows];
        while let Some(mut batch) = batches.pop() {
            if batch.is_empty() {
                continue;
            }
            let written = self.write_retried(session, &batch).await;
            let locked = self.are_locked(session, &written, batch.len()).await?;
            match written {
                Ok(()) => {
                    for (row, change) in &batch {
                        session.retries.remove(row);
                        session.held_retries.remove(row);
                        if was_tried(change) {
                            session.suspected.forget(*row);
                        }
                        if change.delivered {
                            // Those behind them may go.
                            session.retry_looks.soon(now);
                        }
                    }
                }
                Err(error) if !error.is_refusal() && !error.is_contention() => return Err(error),
                Err(error) if locked => {
                    let error = StoreError::from(error).to_string();
                    for (row, _) in &batch {
                        let id = failed_id(*row);
                        let Some(retry) = session.retries.get_mut(row) else {
                            continue;
                        };
                        if asking.contains(&id) {
                            retry.outcome = None;
                            unwritten.busy.push(BusyRow { id, holder: None });
                        } else if retry.refused.replace(Rewrite::after(retry.refused, now)).is_none() {
                            say_locked(*row, &error);
                        }
                    }
                }
                Err(error) if batch.len() == 1 || error.concerns_all_rows() => {
                    let error = StoreError::from(error).to_string();
                    for (row, _) in &batch {
                        let id = failed_id(*row);
                        if asking.contains(&id) {
                            session.hold_retry(*row, now);
                            unwritten.refused.push(refusal(id, &error));
                        } else if let Some(retry) = session.retries.get_mut(row) {
                            if retry.refused.is_none() {
                                unwritten.refused.push(refusal(id, &error));
                            }
                            retry.refused = Some(Rewrite::after(retry.refused, now));
                        }
                    }
                }
                Err(_) => {
                    let rest = batch.split_off(batch.len() / 2);
                    batches.push(rest);
                    batches.push(batch);
                }
            }
        }
        Ok(unwritten)
    }

    /// Writes what became of failed rows. Of two statements the first may be written and the second refused: each can be
    /// repeated.
    async fn write_retried(&self, session: &mut Session, rows: &[(i64, RowChange)]) -> LogResult<()> {
        let (delivered, failed): (Vec<_>, Vec<_>) = rows.iter().partition(|(_, change)| change.delivered);
        if !delivered.is_empty() {
            sqlx::query(self.statements.failures.delete_delivered.sql())
                .bind(delivered.iter().map(|(row, _)| *row).collect::<Vec<_>>())
                .execute(session.connection()?)
                .await?;
        }
        if !failed.is_empty() {
            let dead = |change: &RowChange| change.status == Some(StatusLabel::Dead);
            let changes = || failed.iter().map(|(_, change)| change);
            sqlx::query(self.statements.failures.retried.sql())
                .bind(failed.iter().map(|(row, _)| *row).collect::<Vec<_>>())
                .bind(changes().map(dead).collect::<Vec<_>>())
                .bind(changes().map(|change| i64::from(change.attempts)).collect::<Vec<_>>())
                .bind(changes().map(|change| change.delay.map(millis)).collect::<Vec<_>>())
                .bind(changes().map(|change| change.error.as_deref()).collect::<Vec<_>>())
                .bind(i64::from(self.options.max_retries))
                .execute(session.connection()?)
                .await?;
        }
        Ok(())
    }
}

pub(super) fn say_locked(row: i64, error: &str) {
    tracing::warn!(
        row,
        error,
        "another transaction's lock keeps what became of this event from being written down; it is remembered, and tried again; if it \
         lasts, end the transaction that holds the lock"
    );
}

pub(super) fn refusal(id: MessageId, error: &str) -> RefusedVerdict {
    RefusedVerdict {
        id,
        error: StoreError {
            kind: posthaste_core::store::StoreErrorKind::Other,
            message: format!("the table of failures does not take this event, so its lane stands still: {error}"),
            remedy: Some("remove the cause; it is written down by itself then, and not sent again"),
            source: None,
        },
    }
}
