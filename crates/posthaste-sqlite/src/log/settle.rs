//! Applies verdicts: to the reader's memory, and where something failed to the table of failures.
//!
//! Verdicts are taken into memory first; what has to be written of them is written from there, at once or, where that did
//! not work, with the next call. So an error costs neither a verdict nor the reader's knowledge.

use std::time::Instant;

use posthaste_core::MessageId;
use posthaste_core::lifecycle::{EXHAUSTED, Settlement};
use posthaste_sql::RowChange;
use posthaste_sql::log::{Failure, Suspects};
use posthaste_sql::row_change::StatusLabel;
use sqlx::SqliteConnection;
use sqlx::types::Json;

use super::Inner;
use super::session::Session;
use crate::BEGIN;
use crate::rows::millis;

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
                self.apply_fresh(row, change, now);
                continue;
            }
            let token = settlement.token;
            let retry = self.retries.get_mut(&settlement.id);
            match retry.filter(|retry| retry.token == token && retry.outcome.is_none()) {
                Some(retry) => retry.outcome = Some(change),
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

/// What a reader says of the rows that it hands out.
#[derive(Clone, Copy, Debug)]
pub(super) enum Handing {
    /// It goes on.
    Out,
    /// It hands out rows up to this one next.
    UpTo(i64),
    /// It ends.
    Over,
}

impl Inner {
    /// Writes down what is remembered and has to be, and now and then how far the log is settled. Returns whether this is
    /// still the reader; if not, nothing was written.
    pub(super) async fn flush(&self, session: &mut Session, at_rest: bool, now: Instant) -> sqlx::Result<bool> {
        let failures = session.reader.window.failures(now);
        let checkpoint = session.checkpoint_is_due(at_rest, now);
        let any_retried = session.retries.values().any(|retry| retry.outcome.is_some());
        if failures.is_empty() && !any_retried && !checkpoint {
            return Ok(true);
        }
        self.write_down(session, now).await
    }

    /// Writes down what is remembered, and how far the log is settled. Returns whether this is still the reader.
    pub(super) async fn write_down(&self, session: &mut Session, now: Instant) -> sqlx::Result<bool> {
        self.write_down_with(session, Handing::Out, now).await
    }

    /// The same; of a reader that ends it is written down that what it has in flight has not killed it.
    pub(super) async fn write_down_with(
        &self,
        session: &mut Session,
        handing: Handing,
        now: Instant,
    ) -> sqlx::Result<bool> {
        let failures = session.reader.window.failures(now);
        let mut tx = self.common.pool().begin_with(BEGIN).await?;
        if !self.is_reader(session, &mut tx).await? {
            return Ok(false);
        }
        self.write_failures(&mut tx, &failures, &session.reader.suspects)
            .await?;
        self.write_retried(&mut tx, session).await?;
        // Before the state is taken: what was written is settled. If the transaction fails, they are read again and found
        // to be there, or not.
        let unwritten = session.reader.clone();
        for failure in &failures {
            session.reader.window.settle(failure.id);
        }
        let handed_out = match handing {
            Handing::Out => session.reader.handed_out(session.reader.gaps().hi()),
            Handing::UpTo(last) => session.reader.handed_out(last),
            Handing::Over => session.reader.ended(),
        };
        let mut committed = self.checkpoint(session, &mut tx, &handed_out, now).await;
        if let Ok(true) = committed {
            committed = tx.commit().await.map(|()| true);
        }
        if !matches!(committed, Ok(true)) {
            session.reader = unwritten;
            return committed;
        }
        let any_delivered = session
            .retries
            .values()
            .any(|retry| retry.outcome.as_ref().is_some_and(|change| change.delivered));
        if any_delivered {
            // Those behind them may go.
            session.retry_at = now;
        }
        session.retries.retain(|_, retry| retry.outcome.is_none());
        Ok(true)
    }

    /// Whether nobody else reads by now; asked within the transaction that writes.
    pub(super) async fn is_reader(&self, session: &Session, conn: &mut SqliteConnection) -> sqlx::Result<bool> {
        let fence = sqlx::query(self.statements.reading.fence.sql()).bind(session.epoch);
        Ok(fence.fetch_optional(conn).await?.is_some())
    }

    async fn write_failures(
        &self,
        conn: &mut SqliteConnection,
        failures: &[Failure],
        suspects: &Suspects,
    ) -> sqlx::Result<()> {
        if failures.is_empty() {
            return Ok(());
        }
        let row = |failure: &Failure| {
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
        sqlx::query(self.statements.failures.fail.sql())
            .bind(Json(failures.iter().map(row).collect::<Vec<_>>()))
            .execute(conn)
            .await?;
        Ok(())
    }

    async fn write_retried(&self, conn: &mut SqliteConnection, session: &Session) -> sqlx::Result<()> {
        let outcomes = session
            .retries
            .values()
            .filter_map(|retry| Some((retry.number, retry.outcome.as_ref()?)));
        let (delivered, failed): (Vec<_>, Vec<_>) = outcomes.partition(|(_, change)| change.delivered);
        if !delivered.is_empty() {
            let numbers: Vec<i64> = delivered.iter().map(|(number, _)| *number).collect();
            sqlx::query(self.statements.failures.delete_delivered.sql())
                .bind(Json(numbers))
                .execute(&mut *conn)
                .await?;
        }
        if !failed.is_empty() {
            let row = |(number, change): &(i64, &'_ RowChange)| -> (i64, i32, Option<String>, Option<i64>, bool) {
                // The claim has counted the attempt.
                let attempts = change.attempts - 1;
                let dead = change.status == Some(StatusLabel::Dead);
                (*number, attempts, change.error.clone(), change.delay.map(millis), dead)
            };
            sqlx::query(self.statements.failures.retried.sql())
                .bind(Json(failed.iter().map(row).collect::<Vec<_>>()))
                .execute(conn)
                .await?;
        }
        Ok(())
    }
}
