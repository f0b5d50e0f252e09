//! Applies verdicts: to the reader's memory, and where something failed to the table of failures.

use std::time::Instant;

use posthaste_core::MessageId;
use posthaste_core::lifecycle::{Settlement, Verdict};
use posthaste_core::log::Failure;

use super::Inner;
use super::session::Session;
use crate::rows::millis;

/// A verdict on a failed row that was tried again.
struct Retried {
    row: i64,
    verdict: &'static str,
    delay_ms: i64,
    error: String,
}

impl Inner {
    /// Returns the ids that were not held. If this fails the seat is given up: then nobody knows what was written, and a
    /// reader that begins at the cursor repeats it.
    pub(super) async fn settle_on(
        &self,
        session: &mut Session,
        settlements: &[Settlement],
    ) -> sqlx::Result<Vec<MessageId>> {
        let now = Instant::now();
        let mut lost = Vec::new();
        let (mut well, mut badly) = (Vec::new(), Vec::new());
        for settlement in settlements {
            let (id, token) = (settlement.id, settlement.token);
            let fresh = id.number().filter(|row| session.reader.window.is_held(*row, token));
            if let Some(row) = fresh {
                settle_fresh(session, row, &settlement.verdict, now);
            } else if session.retries.get(&id).is_some_and(|retry| retry.token == token) {
                let Some(retry) = session.retries.remove(&id) else {
                    continue;
                };
                match retried(retry.row, &settlement.verdict) {
                    Ok(()) => well.push(retry.row),
                    Err(None) => {}
                    Err(Some(retried)) => badly.push(retried),
                }
            } else {
                lost.push(id);
            }
        }
        self.write_retried(session, well, badly, now).await?;
        let failures = session.reader.window.failures();
        if !failures.is_empty() {
            let retries = |failure: &Failure| if failure.dead { self.options.max_retries } else { 0 };
            let rows = failures.iter().map(|failure| {
                (
                    failure.id,
                    retries(failure),
                    Some(failure.error.clone()),
                    millis(failure.delay),
                )
            });
            self.write_failures(session, rows.collect()).await?;
            for failure in &failures {
                session.reader.window.settle(failure.id);
            }
        }
        let at_rest = false;
        session.store_cursor(&self.statements, at_rest).await?;
        Ok(lost)
    }

    async fn write_retried(
        &self,
        session: &mut Session,
        well: Vec<i64>,
        badly: Vec<Retried>,
        now: Instant,
    ) -> sqlx::Result<()> {
        if !well.is_empty() {
            sqlx::query(self.statements.retried_well.sql())
                .bind(well)
                .execute(&mut session.connection)
                .await?;
            // Those behind them may go.
            session.retry_at = now;
        }
        if !badly.is_empty() {
            let error = |retried: &Retried| self.map.error_text(&retried.error);
            sqlx::query(self.statements.retried.sql())
                .bind(badly.iter().map(|retried| retried.row).collect::<Vec<_>>())
                .bind(badly.iter().map(|retried| retried.verdict).collect::<Vec<_>>())
                .bind(badly.iter().map(|retried| retried.delay_ms).collect::<Vec<_>>())
                .bind(badly.iter().map(error).collect::<Vec<_>>())
                .bind(i64::from(self.options.max_retries))
                .execute(&mut session.connection)
                .await?;
        }
        Ok(())
    }
}

fn settle_fresh(session: &mut Session, row: i64, verdict: &Verdict, now: Instant) {
    let window = &mut session.reader.window;
    let mut fail = |delay, dead, error: &String| {
        window.fail(Failure {
            id: row,
            delay,
            dead,
            error: error.clone(),
        });
    };
    match verdict {
        Verdict::Delivered => window.settle(row),
        Verdict::Retry { delay, error } => fail(*delay, false, error),
        Verdict::Dead { error } => fail(std::time::Duration::ZERO, true, error),
        Verdict::Postponed { delay, .. } => window.put_back(row, Some(now + *delay)),
        Verdict::Released => window.put_back(row, None),
    }
}

/// What is written of a retry: `Ok` if it was delivered, and nothing if it was not made.
fn retried(row: i64, verdict: &Verdict) -> Result<(), Option<Retried>> {
    let (verdict, delay, error) = match verdict {
        Verdict::Delivered => return Ok(()),
        Verdict::Released => return Err(None),
        Verdict::Retry { delay, error } => ("retry", *delay, error),
        Verdict::Postponed { delay, error } => ("postponed", *delay, error),
        Verdict::Dead { error } => ("dead", std::time::Duration::ZERO, error),
    };
    Err(Some(Retried {
        row,
        verdict,
        delay_ms: millis(delay),
        error: error.clone(),
    }))
}
