//! The reader's connection: whose lock makes it the one, on which everything is written, and with which it ends.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use posthaste_core::MessageId;
use posthaste_core::lifecycle::LeaseToken;
use posthaste_core::log::{Lane, LogReader, Proof};
use sqlx::{ConnectOptions, Connection, PgConnection, PgPool};

use super::statements::LogStatements;
use crate::rows::millis;

/// At most so often the cursor is written while rows are in flight.
const CURSOR_INTERVAL: Duration = Duration::from_millis(250);

/// Whether this store reads the log.
#[derive(Debug, Default)]
pub(super) enum Seat {
    /// Not connected.
    #[default]
    Away,
    /// Connected; another one reads.
    Waiting(PgConnection),
    /// This one reads.
    Taken(Box<Session>),
}

/// What the log's one reader has.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) connection: PgConnection,
    pub(super) reader: LogReader,
    /// Failed rows that are handed out.
    pub(super) retries: HashMap<MessageId, Retry>,
    /// How long what was handed out is good for, by this process's clock: whoever let it run out lives in this process.
    pub(super) leases: HashMap<LeaseToken, Instant>,
    /// When failed rows are looked at next.
    pub(super) retry_at: Instant,
    /// The last claim was of failed rows, so the next one is of fresh ones first.
    pub(super) fresh_first: bool,
    stored: i64,
    stored_at: Instant,
    idle_limit: Duration,
}

/// A failed row that is handed out.
#[derive(Debug)]
pub(super) struct Retry {
    /// Its primary key.
    pub(super) row: i64,
    pub(super) token: LeaseToken,
    pub(super) lane: Option<Lane>,
}

impl Seat {
    pub(super) fn session(&self) -> Option<&Session> {
        match self {
            Self::Taken(session) => Some(session),
            Self::Away | Self::Waiting(_) => None,
        }
    }

    pub(super) fn session_mut(&mut self) -> Option<&mut Session> {
        match self {
            Self::Taken(session) => Some(session),
            Self::Away | Self::Waiting(_) => None,
        }
    }

    /// Takes the seat if it is free. After an error the connection is gone, and with it the lock.
    pub(super) async fn take(
        &mut self,
        pool: &PgPool,
        statements: &LogStatements,
        cursor_table: &str,
        proof: Proof,
        lease: Duration,
    ) -> sqlx::Result<Option<&mut Session>> {
        if let Self::Taken(session) = self {
            session.limit_idling(lease).await?;
        } else {
            let mut connection = match std::mem::take(self) {
                Self::Waiting(connection) => connection,
                Self::Away | Self::Taken(_) => connect(pool, lease).await?,
            };
            let locked: bool = sqlx::query_scalar(statements.lock.sql())
                .bind(cursor_table)
                .fetch_one(&mut connection)
                .await?;
            if !locked {
                *self = Self::Waiting(connection);
                return Ok(None);
            }
            let stored: Option<i64> = sqlx::query_scalar(statements.cursor.sql())
                .fetch_optional(&mut connection)
                .await?;
            let stored = stored.unwrap_or(0);
            tracing::info!(cursor = stored, "reading the log");
            let now = Instant::now();
            *self = Self::Taken(Box::new(Session {
                connection,
                reader: LogReader::after(stored, proof),
                retries: HashMap::new(),
                leases: HashMap::new(),
                retry_at: now,
                fresh_first: false,
                stored,
                stored_at: now,
                idle_limit: lease,
            }));
        }
        Ok(self.session_mut())
    }
}

/// A connection that the server ends if nothing is heard on it for a lease: a reader that is frozen or cut off must not
/// keep its seat. Whatever it handed to a publisher was leased for no longer, counted from earlier.
async fn connect(pool: &PgPool, lease: Duration) -> sqlx::Result<PgConnection> {
    let options = pool.connect_options();
    let mut connection = options.connect().await?;
    limit_idling(&mut connection, lease).await?;
    sqlx::query("select set_config('jit', 'off', false)")
        .execute(&mut connection)
        .await?;
    Ok(connection)
}

async fn limit_idling(connection: &mut PgConnection, lease: Duration) -> sqlx::Result<()> {
    // `idle_session_timeout` is there from PostgreSQL 14 on; before, only a peer that does not answer is noticed.
    sqlx::query(
        "select set_config(name, $1::text, false) from pg_settings
         where name in ('idle_session_timeout', 'idle_in_transaction_session_timeout', 'tcp_user_timeout', 'lock_timeout')",
    )
    .bind(millis(lease).to_string())
    .execute(connection)
    .await
    .map(drop)
}

impl Session {
    async fn limit_idling(&mut self, lease: Duration) -> sqlx::Result<()> {
        if lease != self.idle_limit {
            limit_idling(&mut self.connection, lease).await?;
            self.idle_limit = lease;
        }
        Ok(())
    }

    /// Shows the server that this reader lives, and finds out whether its connection does.
    pub(super) async fn stay(&mut self, lease: Duration) -> sqlx::Result<()> {
        self.idle_limit = lease;
        limit_idling(&mut self.connection, lease).await
    }

    /// How many rows are handed out.
    pub(super) fn in_flight(&self) -> usize {
        self.reader.window.in_flight() + self.retries.len()
    }

    /// Puts back what a worker of this process held beyond its lease.
    pub(super) fn take_back_expired(&mut self, now: Instant) {
        let expired: Vec<LeaseToken> = self
            .leases
            .iter()
            .filter_map(|(token, until)| (*until < now).then_some(*token))
            .collect();
        for token in expired {
            self.leases.remove(&token);
            self.reader.window.put_back_all(token);
            self.retries.retain(|_, retry| retry.token != token);
        }
    }

    /// Stores the cursor if it moved; while rows are in flight not too often.
    pub(super) async fn store_cursor(&mut self, statements: &LogStatements, at_rest: bool) -> sqlx::Result<()> {
        let position = self.reader.position();
        if position == self.stored || !(at_rest || self.stored_at.elapsed() >= CURSOR_INTERVAL) {
            return Ok(());
        }
        sqlx::query(statements.move_cursor.sql())
            .bind(position)
            .execute(&mut self.connection)
            .await?;
        self.stored = position;
        self.stored_at = Instant::now();
        Ok(())
    }

    /// Gives up the seat.
    pub(super) async fn close(mut self) -> sqlx::Result<()> {
        // The server notices the end of a connection a little later; the next reader need not wait for that.
        sqlx::query("select pg_advisory_unlock_all()")
            .execute(&mut self.connection)
            .await?;
        self.connection.close().await
    }
}
