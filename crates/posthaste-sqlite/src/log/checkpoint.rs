//! Writes down what the reader remembers: verdicts, how far the log is settled and what may be handed out, in one transaction.

use std::time::{Duration, Instant};

use posthaste_sql::log::{HandedOut, LogReader, ReaderState, SuspectedRetries};
use sqlx::SqliteConnection;
use sqlx::types::Json;

use super::Inner;
use super::session::{Session, reader_lease};
use crate::begin::begin;
use crate::rows::millis;

/// At most so often it is written down how far the log is settled, while rows are in flight.
const CHECKPOINT_INTERVAL: Duration = Duration::from_millis(250);

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

/// What a transaction writes down of the reader. It counts once that is committed.
#[derive(Debug)]
struct Checkpoint {
    state: ReaderState,
    handed_out: HandedOut,
    at: Instant,
    /// When the lease was asked for.
    asked: Instant,
}

/// The reader's memory, from which a transaction takes what it writes. Without a commit it is what it was before, also if the caller
/// does not wait for the end: what was committed after all is then written again, and found to be there.
struct Undo<'s> {
    session: &'s mut Session,
    before: Option<(LogReader, SuspectedRetries)>,
}

impl<'s> Undo<'s> {
    fn of(session: &'s mut Session) -> Self {
        let before = Some((session.reader.clone(), session.suspected.clone()));
        Self { session, before }
    }

    fn committed(mut self, checkpoint: Checkpoint) {
        self.before = None;
        self.session.wrote_down(checkpoint);
    }
}

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        let Some(before) = self.before.take() else { return };
        let session = &mut *self.session;
        (session.reader, session.suspected) = before;
        // Which of the two is written down is not known.
        session.stored = None;
        session.reach = i64::MIN;
    }
}

impl Session {
    /// Whether it has to be written down how far the log is settled; while rows are in flight not too often.
    fn checkpoint_is_due(&self, at_rest: bool, now: Instant) -> bool {
        let lately = now.duration_since(self.stored_at) < CHECKPOINT_INTERVAL;
        // Among suspects it has to be known which of them was in flight.
        let at_once = at_rest || self.guard.is_trying;
        let has_changed = || {
            self.stored.as_ref() != Some(&self.reader.state(now))
                || self.suspected.counting(self.retried()) != self.stored_retried
        };
        (at_once || !lately) && has_changed()
    }

    fn wrote_down(&mut self, checkpoint: Checkpoint) {
        self.leased_until = checkpoint.asked + reader_lease(self.lease);
        (self.stored, self.stored_at) = (Some(checkpoint.state), checkpoint.at);
        self.reach = checkpoint.handed_out.reach.unwrap_or(i64::MIN);
        self.stored_retried = checkpoint.handed_out.retried;
        let reader = &self.reader;
        let is_suspect = |id: i64| reader.suspects.crashes(id) > 0;
        self.guard.is_trying =
            !reader.suspects.is_empty() && reader.window.ids_in_flight().any(is_suspect) || self.tries_suspected();
    }
}

impl Inner {
    /// Writes down what is remembered and has to be, and now and then how far the log is settled. Returns whether this is
    /// still the reader; if not, nothing was written.
    pub(super) async fn flush(&self, session: &mut Session, at_rest: bool, now: Instant) -> sqlx::Result<bool> {
        if session.unwritten(now).is_empty() && !session.checkpoint_is_due(at_rest, now) {
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
        let unwritten = session.unwritten(now);
        let mut tx = begin(self.common.pool()).await?;
        if !self.is_reader(session, &mut tx).await? {
            return Ok(false);
        }
        let written = self.write_verdicts(session, &mut tx, unwritten).await?;
        let undo = Undo::of(session);
        // Before the state is taken: what was written is settled.
        undo.session.settle_taken(&written.taken);
        let handed_out = match handing {
            Handing::Out => undo.session.handed_out(),
            Handing::UpTo(last) => undo.session.handing_out(last),
            Handing::Over => undo.session.ending(),
        };
        let Some(checkpoint) = self.checkpoint(undo.session, &mut tx, handed_out, now).await? else {
            return Ok(false);
        };
        tx.commit().await?;
        undo.committed(checkpoint);
        session.wrote(written, now);
        Ok(true)
    }

    /// Whether nobody else reads by now; asked within the transaction that writes.
    pub(super) async fn is_reader(&self, session: &Session, conn: &mut SqliteConnection) -> sqlx::Result<bool> {
        let fence = sqlx::query(self.statements.reading.fence.sql()).bind(session.epoch);
        Ok(fence.fetch_optional(conn).await?.is_some())
    }

    /// Writes down how far the log is settled, and what may be handed out. Nothing if another one reads by now.
    async fn checkpoint(
        &self,
        session: &Session,
        conn: &mut SqliteConnection,
        handed_out: HandedOut,
        now: Instant,
    ) -> sqlx::Result<Option<Checkpoint>> {
        let state = session.reader.state(now);
        let asked = self.now();
        let open: Vec<_> = state.open.iter().map(|range| (*range.start(), *range.end())).collect();
        let written = sqlx::query(self.statements.reading.checkpoint.sql())
            .bind(session.epoch)
            .bind(millis(reader_lease(session.lease)))
            .bind(state.hi)
            .bind(Json(open))
            .bind(handed_out.to_string())
            .fetch_optional(conn)
            .await?;
        Ok(written.map(|_| Checkpoint {
            state,
            handed_out,
            at: now,
            asked,
        }))
    }
}
