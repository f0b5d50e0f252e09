//! Watches over what the proof takes for granted: that ids go up, and are used in the transaction that took them.

use std::time::{Duration, Instant};

use posthaste_core::StoreError;
use posthaste_core::log::{Failure, Proof};
use sqlx::{PgConnection, Row};

use super::error::{LogError, LogResult};
use super::rows::lane;
use super::session::Session;
use super::{Inner, PostgresLogStore};

/// Most rows that one look at closed ids takes.
const PROBE_LIMIT: usize = 1_000;

/// How often the sequence is compared with what was read.
const COMPARE_INTERVAL: Duration = Duration::from_secs(10);

/// How often it is said that rows come late.
const SAY_INTERVAL: Duration = Duration::from_mins(1);

impl Inner {
    /// Looks at closed ids that are due, and now and then at the sequence.
    pub(super) async fn watch_ids(&self, session: &mut Session, now: Instant) -> LogResult<()> {
        if self.proof == Proof::Skipped {
            return Ok(());
        }
        if now.duration_since(session.compared_at) >= COMPARE_INTERVAL {
            let read_to = session.reader.gaps().hi();
            self.compare_sequence(session.connection()?, read_to).await?;
            session.compared_at = now;
        }
        self.probe_closed(session, now).await
    }

    /// A row whose id was closed goes to the table of failures, from where it is delivered: the cursor is past it, and
    /// must not go back.
    async fn probe_closed(&self, session: &mut Session, now: Instant) -> LogResult<()> {
        let Some(ids) = session.reader.closed.due(now) else {
            return Ok(());
        };
        let (first, last): (Vec<i64>, Vec<i64>) = ids.iter().map(|range| (*range.start(), *range.end())).unzip();
        let rows = sqlx::query(self.statements.probe.sql())
            .bind(first)
            .bind(last)
            .bind(i64::try_from(PROBE_LIMIT).unwrap_or(i64::MAX))
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
                found.push(id);
            }
        }
        if !found.is_empty() {
            let failures: Vec<Failure> = found.iter().copied().map(Failure::parked).collect();
            match self.write_failures(session, &failures).await {
                Ok(()) => {
                    session.late.unsaid += found.len() as u64;
                    session.retry_at = now;
                }
                Err(error) if error.is_refusal() => {
                    tracing::error!(
                        ids = ?found,
                        error = %StoreError::from(error),
                        "rows came after their ids were passed over, and the table of failures does not take them"
                    );
                    found.clear();
                    again = true;
                }
                Err(error) => return Err(error),
            }
        }
        session.reader.closed.probed(now, &found, again);
        session.say_late(now, found.first().copied());
        Ok(())
    }

    /// A sequence that stands below what was read was set back, or is not where the ids come from: then rows would be
    /// passed over without a word.
    pub(super) async fn compare_sequence(&self, connection: &mut PgConnection, read_to: i64) -> LogResult<()> {
        let Some(id) = self.map.column("id").filter(|_| !self.map.has("trusted_ids")) else {
            return Ok(());
        };
        let rows = sqlx::query(self.statements.sequence.sql())
            .bind(&self.table)
            .bind(id.name.as_str())
            .fetch_all(connection)
            .await?;
        let mut highest: Option<i64> = None;
        for row in &rows {
            match row.try_get::<Option<i64>, _>("last_value")? {
                Some(last) => highest = highest.max(Some(last)),
                // Nobody knows what this one has given out.
                None => return Ok(()),
            }
        }
        match highest {
            Some(last) if last < read_to => Err(LogError::refuse(
                format!(
                    "the log {} was read up to id {read_to}, but its sequence stands at {last}: the sequence was set back \
                     (`truncate … restart identity`, a restored table), or ids come from elsewhere; new rows would never \
                     be read",
                    self.table
                ),
                "if the sequence was set back, append a row with the position 0 to the cursor's table, or set the sequence \
                 above the cursor; if ids come from elsewhere and go up, write `ids = \"trusted\"` into the map",
            )),
            _ => Ok(()),
        }
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
             insert's, so these rows are delivered late, maybe out of order, and if they come later still or during a \
             restart not at all; let the database give the id at the insert (IDENTITY, or no column for it), or call \
             nextval in the same transaction (allocationSize = 1) on a sequence that the column owns"
        );
        self.late.said_at = Some(now);
    }
}

impl PostgresLogStore {
    /// How many rows of the log are looked for though their ids were closed; `None` if this store does not read.
    #[doc(hidden)]
    pub async fn closed_ids(&self) -> Option<u64> {
        let seat = self.inner.seat.lock().await;
        Some(seat.session()?.reader.closed.count())
    }
}
