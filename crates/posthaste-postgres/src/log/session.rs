//! What the log's one reader remembers, and the connection on which it writes.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use posthaste_core::lifecycle::LeaseToken;
use posthaste_sql::RowChange;
use posthaste_sql::log::{HandedOut, Lane, LogReader, RetryLooks, Rewrite, SuspectedRetries};
use sqlx::{Connection, PgConnection};

use super::Reader;
use super::error::{LogError, LogResult};
use super::reader_lock::Link;
use super::state::{Checkpoint, LogName, Saved};
use super::statements::Statements;
use super::tail::Tail;
use super::{Shard, of_shard};

/// At most so often the cursor is written while rows are in flight.
const CURSOR_INTERVAL: Duration = Duration::from_millis(250);

/// And at least once for so many deliveries: what was settled since is repeated after a crash, beside what was in flight.
const MAX_UNSTORED: u32 = 10_000;

/// How often it is said that the reader waits for its cursor.
const SAY_INTERVAL: Duration = Duration::from_mins(1);

/// What the log's one reader has. Its memory outlives its connection: see [`super::reader_lock`].
#[derive(Debug)]
pub(super) struct Session {
    /// None after the connection was lost.
    pub(super) link: Option<Link>,
    /// The server's process of the last connection.
    pub(super) pid: i32,
    /// Which run of the server all this was learnt from.
    pub(super) server: String,
    /// And from which files of the log.
    pub(super) storage: Storage,
    /// A call is under way. If the next one finds this, that one was cut short, and its answer may still come.
    pub(super) in_use: bool,
    pub(super) reader: LogReader,
    /// Rows that were read ahead of it.
    pub(super) tail: Tail,
    /// Failed rows that are handed out, by their primary keys.
    pub(super) retries: HashMap<i64, Retry>,
    /// Failed rows that may have killed an earlier reader.
    pub(super) suspected: SuspectedRetries,
    /// Failed rows whose verdicts were refused, which come again for them after a while; and their lanes.
    pub(super) held_retries: HashMap<i64, (Rewrite, Option<Lane>)>,
    /// How long what was handed out is good for, by this process's clock: whoever let it run out lives in this process.
    pub(super) leases: HashMap<LeaseToken, Instant>,
    /// When failed rows are looked at next.
    pub(super) retry_looks: RetryLooks,
    /// The last claim was of failed rows, so the next one is of fresh ones first.
    pub(super) fresh_first: bool,
    /// Rows that only wait are being written. If the next write of such rows finds this, that one was cut short.
    pub(super) is_parking: bool,
    /// When the sequence was last compared with what was read.
    pub(super) compared_at: Instant,
    /// Rows that came after their ids were closed.
    pub(super) late: LateRows,
    pub(super) stored: i64,
    /// What may have been stored: its answer did not come.
    pub(super) storing: Option<i64>,
    pub(super) stored_at: Instant,
    /// Deliveries since then.
    pub(super) unstored: u32,
    /// Where the rest of what this reader knows is kept for a successor.
    pub(super) keeping: Keeping,
    pub(super) guard: CrashGuard,
    pub(super) idle_limit: Duration,
}

/// What is done so that a successor knows what killed this reader.
#[derive(Debug)]
pub(super) struct CrashGuard {
    /// As it is written down: no row beyond this one may be handed out.
    pub(super) reach: i64,
    /// It is written down that rows are in flight which may have killed an earlier reader.
    is_trying: bool,
    /// The next row is handed out once nothing else is in flight.
    pub(super) waits_to_be_alone: bool,
    /// The same of suspects among the failed rows.
    pub(super) retries_wait_to_be_alone: bool,
}

impl CrashGuard {
    /// Whether something waits for nothing else to be in flight.
    pub(super) fn waits(&self) -> bool {
        self.waits_to_be_alone || self.retries_wait_to_be_alone
    }
}

/// Nothing is written down yet.
impl Default for CrashGuard {
    fn default() -> Self {
        Self {
            reach: i64::MIN,
            is_trying: false,
            waits_to_be_alone: false,
            retries_wait_to_be_alone: false,
        }
    }
}

/// Where a reader keeps what a successor needs to know beyond the cursor.
#[derive(Debug)]
pub(super) enum Keeping {
    /// In the table of readers.
    Stored {
        name: LogName,
        /// What stands there.
        state: Option<String>,
        /// What may stand there: its answer did not come.
        writing: Option<String>,
        /// What may be handed out, as it stands there; None if there is no place for it.
        handed_out: Option<String>,
    },
    /// Nowhere, so the reader stays near its cursor.
    Nowhere {
        /// When it was said that the reader waits.
        said_at: Option<Instant>,
    },
}

impl Keeping {
    pub(super) fn of(saved: Saved) -> Self {
        match saved.name {
            Some(name) => Self::Stored {
                name,
                state: saved.row.map(|row| row.state),
                writing: None,
                handed_out: saved.counts_crashes.then(String::new),
            },
            None => Self::Nowhere { said_at: None },
        }
    }

    /// Whether what is stored is what this reader stored.
    pub(super) fn is_ours(&self, saved: &Saved) -> bool {
        let found = saved.row.as_ref().map(|row| &row.state);
        match self {
            Self::Stored { state, writing, .. } => {
                found == state.as_ref() || (found.is_some() && found == writing.as_ref())
            }
            Self::Nowhere { .. } => true,
        }
    }
}

/// Where the log is, and as of when.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Storage {
    pub(super) files: String,
    /// All transactions before this one had ended.
    pub(super) horizon: String,
}

/// Rows that came after their ids were closed, and what was said of them.
#[derive(Debug, Default)]
pub(super) struct LateRows {
    pub(super) unsaid: u64,
    pub(super) said_at: Option<Instant>,
    /// Ids that are looked at no more because there are too many, as far as that was said.
    pub(super) dropped: u64,
}

/// A failed row that is handed out.
#[derive(Debug)]
pub(super) struct Retry {
    pub(super) token: LeaseToken,
    pub(super) lane: Option<Lane>,
    /// What became of it, if that is not written down yet.
    pub(super) outcome: Option<RowChange>,
    /// When it is to be written down, after a refusal.
    pub(super) refused: Option<Rewrite>,
}

impl Session {
    /// The connection, while there is one.
    pub(super) fn connection(&mut self) -> LogResult<&mut PgConnection> {
        self.link().map(|link| &mut link.connection)
    }

    /// The same, with what is known of it.
    pub(super) fn link(&mut self) -> LogResult<&mut Link> {
        self.link.as_mut().ok_or_else(not_connected)
    }

    /// Ends a call: after an error of the connection that is given up, and nothing else.
    pub(super) fn end_use<T>(&mut self, outcome: &LogResult<T>) {
        self.in_use = false;
        if outcome.as_ref().is_err_and(LogError::ends_connection) {
            self.link = None;
        }
    }

    /// What was read says nothing about the log any more: the next call begins at the stored cursor.
    pub(super) fn forget(&mut self) {
        self.link = None;
        self.server.clear();
    }

    /// Whether a failed row is handed out under this token, and has no verdict yet.
    pub(super) fn is_retried(&self, row: i64, token: LeaseToken) -> bool {
        let held = |retry: &Retry| retry.token == token && retry.outcome.is_none();
        self.retries.get(&row).is_some_and(held)
    }

    /// The failed rows that are handed out.
    fn retried(&self) -> impl Iterator<Item = i64> {
        let retries = self.retries.iter().filter(|(_, retry)| retry.outcome.is_none());
        retries.map(|(row, _)| *row)
    }

    /// How many rows are handed out.
    pub(super) fn in_flight(&self) -> usize {
        self.reader.window.in_flight() + self.retried().count()
    }

    /// How many failed rows are handed out.
    pub(super) fn retries_in_flight(&self) -> usize {
        self.retried().count()
    }

    /// Whether something is in flight beside which nothing else may be.
    pub(super) fn is_alone(&self) -> bool {
        self.reader.is_alone() || self.tries_suspected()
    }

    /// Whether failed rows are handed out that may have killed an earlier reader. They are by themselves.
    fn tries_suspected(&self) -> bool {
        !self.suspected.is_empty() && self.retried().any(|row| self.suspected.contains(row))
    }

    /// What to write down before rows up to `last` are handed out.
    fn handing_out(&mut self, last: i64) -> HandedOut {
        let mut handed_out = self.reader.handed_out(last);
        handed_out.retried = self.suspected.counting(self.retried());
        if self.tries_suspected() && self.reader.window.in_flight() == 0 {
            // No row of the log can be the cause if this reader crashes now.
            handed_out.reach = None;
        }
        handed_out
    }

    /// Whether it is written down what may be handed out, for a successor that has to know.
    pub(super) fn counts_crashes(&self) -> bool {
        matches!(
            &self.keeping,
            Keeping::Stored {
                handed_out: Some(_),
                ..
            }
        )
    }

    /// Puts back what a worker of this process held beyond its lease.
    pub(super) fn release_expired(&mut self, now: Instant) {
        let expired: Vec<LeaseToken> = self
            .leases
            .iter()
            .filter_map(|(token, until)| (*until < now).then_some(*token))
            .collect();
        for token in expired {
            self.release(token);
        }
    }

    /// Puts back what was handed out under a token and has no verdict.
    pub(super) fn release(&mut self, token: LeaseToken) {
        self.leases.remove(&token);
        self.reader.window.put_back_all(token);
        self.retries
            .retain(|_, retry| retry.token != token || retry.outcome.is_some());
    }
}

impl Reader {
    /// Stores how far the log is settled, if that changed; while rows are in flight not too often.
    pub(super) async fn checkpoint(&self, session: &mut Session, at_rest: bool, now: Instant) -> LogResult<()> {
        let lately = now.duration_since(session.stored_at) < CURSOR_INTERVAL;
        // Among suspects it has to be known which of them was in flight.
        let few = session.unstored < MAX_UNSTORED;
        if lately && few && !at_rest && !session.reader.is_at_bound() && !session.guard.is_trying {
            return Ok(());
        }
        let handed_out = session.handing_out(session.reader.gaps().hi());
        self.write_state(session, &handed_out, now).await
    }

    /// Writes down that rows up to `last` may be handed out, unless that stands there. After a crash of this reader its
    /// successor knows what may have caused it.
    pub(super) async fn write_ahead(&self, session: &mut Session, last: i64, now: Instant) -> LogResult<()> {
        if last <= session.guard.reach || !session.counts_crashes() {
            return Ok(());
        }
        let handed_out = session.handing_out(last);
        self.write_state(session, &handed_out, now).await
    }

    /// The same for suspects and failed rows, which are handed out already, in memory: each of them counts.
    pub(super) async fn write_trial(&self, session: &mut Session, now: Instant) -> LogResult<()> {
        let handed_out = session.handing_out(session.reader.gaps().hi());
        self.write_state(session, &handed_out, now).await
    }

    /// Writes down how far the log is settled, and that the reader ends: what it has in flight has not killed it.
    pub(super) async fn end(&self, session: &mut Session, now: Instant) -> LogResult<()> {
        let mut ended = session.reader.ended();
        ended.retried = session.suspected.counting([]);
        self.write_state(session, &ended, now).await
    }

    async fn write_state(&self, session: &mut Session, handing_out: &HandedOut, now: Instant) -> LogResult<()> {
        // What may have come late can hold it below what was stored.
        let position = session.reader.safe_position(now).max(session.stored);
        let moved = position > session.stored;
        let Keeping::Stored {
            name,
            state,
            writing,
            handed_out,
        } = &mut session.keeping
        else {
            if moved {
                self.store_cursor(session, position, now).await?;
            }
            session.say_waiting(now);
            return Ok(());
        };
        let new = session.reader.state(now).to_string();
        let new_handed_out = handed_out.as_ref().map(|_| format!("{} {handing_out}", self.id));
        if !moved && state.as_ref() == Some(&new) && *handed_out == new_handed_out {
            return Ok(());
        }
        let Some((table, link)) = self.state_table.as_ref().zip(session.link.as_mut()) else {
            return Err(not_connected());
        };
        session.storing = Some(position);
        *writing = Some(new);
        let text = writing.as_deref().unwrap_or_default();
        let written = table
            .checkpoint(
                &mut link.connection,
                name,
                self.shard.as_ref(),
                Checkpoint {
                    position,
                    moved,
                    state: text,
                    handed_out: new_handed_out.as_deref(),
                },
            )
            .await;
        match written {
            Ok(()) => {
                *state = writing.take();
                *handed_out = new_handed_out;
                let reader = &session.reader;
                let is_suspect = |id: i64| reader.suspects.crashes(id) > 0;
                session.guard.is_trying = !reader.suspects.is_empty() && reader.window.ids_in_flight().any(is_suspect)
                    || session.tries_suspected();
                session.guard.reach = handing_out.reach.unwrap_or(i64::MIN);
                (session.stored, session.storing, session.stored_at) = (position, None, now);
                session.unstored = 0;
                Ok(())
            }
            Err(error) if error.is_refusal() => self.keep_nowhere(session, error, (position, moved), now).await,
            Err(error) => Err(error),
        }
    }

    /// The table of readers does not take it any more; if the cursor's does, the reader goes on, near its cursor.
    async fn keep_nowhere(
        &self,
        session: &mut Session,
        error: LogError,
        (position, moved): (i64, bool),
        now: Instant,
    ) -> LogResult<()> {
        if moved {
            self.store_cursor(session, position, now).await?;
        }
        session.keeping = Keeping::Nowhere { said_at: None };
        self.bound(session);
        let error = posthaste_core::StoreError::from(error);
        tracing::warn!(%error, "the state of the log's reader cannot be written any more");
        Ok(())
    }

    async fn store_cursor(&self, session: &mut Session, position: i64, now: Instant) -> LogResult<()> {
        session.storing = Some(position);
        move_cursor(session.connection()?, &self.statements, self.shard.as_ref(), position).await?;
        (session.stored, session.storing, session.stored_at) = (position, None, now);
        session.unstored = 0;
        self.bound(session);
        Ok(())
    }

    /// Keeps a reader whose state is stored nowhere near its cursor.
    pub(super) fn bound(&self, session: &mut Session) {
        let bound = match session.keeping {
            Keeping::Stored { .. } => None,
            Keeping::Nowhere { .. } => {
                let ahead = i64::try_from(self.options.max_ahead).unwrap_or(i64::MAX);
                Some(session.stored.saturating_add(ahead.max(1)))
            }
        };
        session.reader.stay_within(bound);
    }

    /// A relay that reads a log and cannot say how far publishes all of it again, at every start.
    pub(super) async fn try_checkpoint(&self, session: &mut Session) -> LogResult<()> {
        let (stored, state) = (session.stored, session.reader.state(self.now()).to_string());
        let counts_crashes = session.counts_crashes();
        let Some(link) = session.link.as_mut() else {
            return Err(not_connected());
        };
        let mut trial = link.connection.begin().await?;
        match (&session.keeping, &self.state_table) {
            (Keeping::Stored { name, .. }, Some(table)) => {
                let checkpoint = Checkpoint {
                    position: stored,
                    moved: true,
                    state: &state,
                    handed_out: counts_crashes.then_some(""),
                };
                let shard = self.shard.as_ref();
                table.checkpoint(&mut trial, name, shard, checkpoint).await?;
            }
            _ => move_cursor(&mut trial, &self.statements, self.shard.as_ref(), stored).await?,
        }
        trial.rollback().await?;
        Ok(())
    }
}

impl Session {
    /// Says now and then that events wait because the cursor cannot move.
    fn say_waiting(&mut self, now: Instant) {
        let Keeping::Nowhere { said_at } = &mut self.keeping else {
            return;
        };
        let quiet = said_at.is_some_and(|said| now.duration_since(said) < SAY_INTERVAL);
        if quiet || !self.reader.is_at_bound() {
            return;
        }
        *said_at = Some(now);
        tracing::warn!(
            cursor = self.stored,
            read_to = self.reader.gaps().hi(),
            "the log is not read further before its cursor moves, which an open transaction or an unsettled event keeps it \
             from: the state of its reader is stored nowhere, so a restart would repeat all beyond the cursor; let \
             `posthaste migrate` make the table for it"
        );
    }
}

async fn move_cursor(
    connection: &mut PgConnection,
    statements: &Statements,
    shard: Option<&Shard>,
    position: i64,
) -> LogResult<()> {
    let moved = sqlx::query(statements.reading.move_cursor.sql()).bind(position);
    if of_shard(moved, shard).execute(connection).await?.rows_affected() == 0 {
        return Err(cursor_swallowed());
    }
    Ok(())
}

/// The cursor's table took a row and does not have it.
pub(super) fn cursor_swallowed() -> LogError {
    LogError::refuse(
        "the row that says how far the log was read is not in its table after it was written".to_owned(),
        "look for a trigger or a rule on the cursor's table that swallows inserts",
    )
}

fn not_connected() -> LogError {
    LogError::Sql(sqlx::Error::Io(std::io::ErrorKind::NotConnected.into()))
}
