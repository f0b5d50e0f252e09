//! What the log's one reader remembers, and the connection on which it writes.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use posthaste_core::lifecycle::LeaseToken;
use posthaste_sql::RowChange;
use posthaste_sql::log::{Lane, LogReader, Rewrite};
use sqlx::{Connection, PgConnection};

use super::error::{LogError, LogResult};
use super::reader_lock::Link;
use super::statements::Statements;
use super::{Shard, of_shard};
use super::tail::Tail;

/// At most so often the cursor is written while rows are in flight.
const CURSOR_INTERVAL: Duration = Duration::from_millis(250);

/// What the log's one reader has. Its memory outlives its connection: see [`super::reader_lock`].
#[derive(Debug)]
pub(super) struct Session {
    /// None after the connection was lost.
    pub(super) link: Option<Link>,
    /// The part of the log that is read, where it has parts.
    pub(super) shard: Option<Shard>,
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
    /// Failed rows whose verdicts were refused, which come again for them after a while; and their lanes.
    pub(super) held_retries: HashMap<i64, (Rewrite, Option<Lane>)>,
    /// How long what was handed out is good for, by this process's clock: whoever let it run out lives in this process.
    pub(super) leases: HashMap<LeaseToken, Instant>,
    /// When failed rows are looked at next.
    pub(super) retry_at: Instant,
    /// The last claim was of failed rows, so the next one is of fresh ones first.
    pub(super) fresh_first: bool,
    /// When the sequence was last compared with what was read.
    pub(super) compared_at: Instant,
    /// Rows that came after their ids were closed.
    pub(super) late: LateRows,
    pub(super) stored: i64,
    /// What may have been stored: its answer did not come.
    pub(super) storing: Option<i64>,
    pub(super) stored_at: Instant,
    pub(super) idle_limit: Duration,
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
        let gone = || LogError::Sql(sqlx::Error::Io(std::io::ErrorKind::NotConnected.into()));
        self.link.as_mut().map(|link| &mut link.connection).ok_or_else(gone)
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

    /// How many rows are handed out.
    pub(super) fn in_flight(&self) -> usize {
        let retries = self.retries.values().filter(|retry| retry.outcome.is_none());
        self.reader.window.in_flight() + retries.count()
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

    /// Stores the cursor if it moved; while rows are in flight not too often.
    pub(super) async fn store_cursor(&mut self, statements: &Statements, at_rest: bool, now: Instant) -> LogResult<()> {
        let position = self.reader.safe_position(now);
        let lately = now.duration_since(self.stored_at) < CURSOR_INTERVAL;
        if position <= self.stored || (lately && !at_rest) {
            return Ok(());
        }
        self.storing = Some(position);
        let shard = self.shard.clone();
        move_cursor(self.connection()?, statements, shard.as_ref(), position).await?;
        self.storing = None;
        self.stored = position;
        self.stored_at = now;
        Ok(())
    }
}

/// A relay that reads a log and cannot say how far publishes all of it again, at every start.
pub(super) async fn try_cursor(
    connection: &mut PgConnection,
    statements: &Statements,
    shard: Option<&Shard>,
    stored: i64,
) -> LogResult<()> {
    let mut trial = connection.begin().await?;
    move_cursor(&mut trial, statements, shard, stored).await?;
    trial.rollback().await?;
    Ok(())
}

async fn move_cursor(
    connection: &mut PgConnection,
    statements: &Statements,
    shard: Option<&Shard>,
    position: i64,
) -> LogResult<()> {
    let moved = sqlx::query(statements.reading.move_cursor.sql()).bind(position);
    if of_shard(moved, shard).execute(connection).await?.rows_affected() == 0 {
        return Err(LogError::refuse(
            "the row that says how far the log was read is not in its table after it was written".to_owned(),
            "look for a trigger or a rule on the cursor's table that swallows inserts",
        ));
    }
    Ok(())
}
