//! Who reads the log: one connection has the lock that makes it the one, and everything is written on it.
//!
//! A connection that is lost takes the lock with it but not the memory. If no other reader has written anything by the
//! time the lock is had again, and the server was not started anew, what was remembered is as true as before, and
//! nothing is delivered twice. Else the reader begins like any other, where the last one left off.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use posthaste_sql::log::{ClosedGaps, LogReader, Proof, ReaderState, RetryLooks};
use sqlx::{ConnectOptions, Connection, PgConnection, Row};

use super::error::{LogError, LogResult};
use super::first_segment::FirstSegment;
use super::session::{CrashGuard, Keeping, LateRows, Session};
use super::state::Saved;
use super::tail::Tail;
use super::{Log, Reader, of_shard};
use crate::rows::millis;
use crate::table_locks::LOCK_TIMEOUT;

/// How long a reader waits for the server to end its own earlier connection.
const END_OWN_TIMEOUT: Duration = Duration::from_secs(2);

/// Whether this store reads the log.
#[derive(Debug, Default)]
pub(super) enum ReaderLock {
    /// Not connected.
    #[default]
    Disconnected,
    /// Connected; another one reads.
    Contending(Link),
    /// This one reads, or did until its connection was lost.
    Held(Box<Session>),
    /// Its shard was handed over or lost, so it reads no more.
    GivenUp,
}

/// Why what a reader remembers is worth nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Forgotten {
    /// What it stored still stands there; rows that it saw may not.
    Restart,
    /// Something else stands there.
    Rewritten,
}

/// A connection of the reader's own.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) connection: PgConnection,
    pid: i32,
    /// What this connection was marked with, so that it knows itself.
    pub(super) mark: String,
    pub(super) first_segment: Option<FirstSegment>,
}

impl ReaderLock {
    pub(super) fn session(&self) -> Option<&Session> {
        match self {
            Self::Held(session) => Some(session),
            Self::Disconnected | Self::Contending(_) | Self::GivenUp => None,
        }
    }

    pub(super) fn session_mut(&mut self) -> Option<&mut Session> {
        match self {
            Self::Held(session) => Some(session),
            Self::Disconnected | Self::Contending(_) | Self::GivenUp => None,
        }
    }
}

impl Reader {
    /// Takes the lock if it is free, or goes on with it. `None` while another one reads.
    pub(super) async fn acquire_lock<'a>(
        &self,
        lock: &'a mut ReaderLock,
        lease: Duration,
    ) -> LogResult<Option<&'a mut Session>> {
        if let ReaderLock::Held(session) = &mut *lock {
            if std::mem::take(&mut session.in_use) {
                session.link = None;
            }
            if session.link.is_some() && session.idle_limit != lease {
                let limited = limit_idling(session.connection()?, lease).await;
                session.idle_limit = lease;
                session.end_use(&limited);
            }
        }
        if matches!(lock, ReaderLock::GivenUp) {
            return Ok(None);
        }
        if lock.session().is_none_or(|session| session.link.is_none()) {
            self.lock_reader(lock, lease).await?;
        }
        let mut session = lock.session_mut();
        if let Some(session) = &mut session {
            session.in_use = true;
        }
        Ok(session)
    }

    /// Goes on with a lock that was taken before; it is not taken anew.
    pub(super) async fn keep_lock<'a>(&self, lock: &'a mut ReaderLock) -> LogResult<Option<&'a mut Session>> {
        match lock.session().map(|session| session.idle_limit) {
            Some(lease) => self.acquire_lock(lock, lease).await,
            None => Ok(None),
        }
    }

    async fn lock_reader(&self, lock: &mut ReaderLock, lease: Duration) -> LogResult<()> {
        // Taken out, so that a call that is cut short leaves no half of it behind. The memory stays.
        let waiting = match &mut *lock {
            ReaderLock::Contending(_) => match std::mem::take(lock) {
                ReaderLock::Contending(link) => Some(link),
                ReaderLock::Disconnected | ReaderLock::Held(_) | ReaderLock::GivenUp => None,
            },
            ReaderLock::Disconnected | ReaderLock::Held(_) | ReaderLock::GivenUp => None,
        };
        let mut link = match waiting {
            Some(link) => link,
            // The keeper of seats has found out whether connections are shared.
            None if self.shard.is_some() => self.connect_beside(lease).await?,
            None => self.connect(lease).await?,
        };
        let mut locked = self.try_lock(&mut link).await?;
        if !locked && let Some(session) = lock.session() {
            locked = self.end_own(&mut link, session.pid).await?;
        }
        if !locked {
            locked = self.end_holder(&mut link, lease).await?;
        }
        if !locked {
            if lock.session().is_some() {
                tracing::warn!("another relay reads the log now; what this one had not stored comes again from there");
            }
            *lock = ReaderLock::Contending(link);
            return Ok(());
        }
        self.contention.ended();
        if self.is_fenced(&mut link.connection).await? {
            *lock = ReaderLock::GivenUp;
            return Ok(());
        }
        let stored = self.stored_cursor(&mut link.connection).await?;
        let server: String = sqlx::query_scalar(self.statements.reading.server.sql())
            .fetch_one(&mut link.connection)
            .await?;
        let saved = self.saved_state(&mut link.connection).await?;
        let mut forgotten = None;
        if let ReaderLock::Held(session) = &mut *lock {
            let ours = stored == session.stored || Some(stored) == session.storing;
            let ours = ours && session.keeping.is_ours(&saved);
            if ours && server == session.server {
                let (shard, position) = (self.shard_number(), self.position(stored));
                tracing::info!(shard, position, "reading the log on a new connection");
                (session.stored, session.storing) = (stored, None);
                (session.pid, session.link, session.idle_limit) = (link.pid, Some(link), lease);
                session.keeping = Keeping::of(saved);
                // Another one may have read meanwhile, and written down a failure before it ended.
                session.tail.clear();
                // What stands there may be older.
                session.guard.reach = i64::MIN;
                self.bound(session);
                return Ok(());
            }
            forgotten = Some(if ours { Forgotten::Restart } else { Forgotten::Rewritten });
        }
        let session = self.begin(link, stored, saved, server, lease).await?;
        *lock = ReaderLock::Held(Box::new(session));
        // Not before: a server that starts ends connections again, and the same would be said each time.
        if let Some(forgotten) = forgotten {
            self.say_forgotten(forgotten, stored);
        }
        Ok(())
    }

    fn say_forgotten(&self, forgotten: Forgotten, stored: i64) {
        let (shard, position) = (self.shard_number(), self.position(stored));
        match forgotten {
            Forgotten::Restart => tracing::info!(
                shard,
                position,
                "the server was started anew, so the log is read from where it was stored to be read"
            ),
            Forgotten::Rewritten => tracing::warn!(
                shard,
                position,
                "another relay has read the log since, or its position was written by hand: it is read from there, and what \
                 this relay had delivered and not stored is delivered again"
            ),
        }
    }

    /// The number of its shard, where there are some.
    fn shard_number(&self) -> Option<i32> {
        self.shard.as_ref().map(|shard| shard.number)
    }

    /// A number of the log as an operator sees it, who counts them within a shard.
    fn position(&self, number: i64) -> i64 {
        self.shard.as_ref().map_or(number, |shard| shard.position(number))
    }

    /// A reader that knows what the last one left.
    async fn begin(
        &self,
        mut link: Link,
        stored: i64,
        saved: Saved,
        server: String,
        lease: Duration,
    ) -> LogResult<Session> {
        let mut start = saved.start(stored, self.id, self.now());
        self.keep_live(&mut link.connection, &mut start.retried).await?;
        self.compare_sequence(&mut link.connection, start.state.hi).await?;
        let storage = self.storage(&mut link.connection).await?;
        let now = self.now();
        let closed = match self.proof {
            Proof::Required => self.left_behind(&mut link.connection, &start, None, now).await?,
            Proof::Skipped => ClosedGaps::default(),
        };
        let suspects = start.suspects.clone();
        let mut session = Session {
            pid: link.pid,
            link: Some(link),
            server,
            storage,
            in_use: false,
            reader: self.resume(&start.state).with_closed(closed).suspecting(suspects),
            tail: Tail::default(),
            retries: HashMap::new(),
            suspected: start.retried,
            held_retries: HashMap::new(),
            leases: HashMap::new(),
            retry_looks: RetryLooks::new(now),
            fresh_first: false,
            is_parking: false,
            compared_at: now,
            late: LateRows::default(),
            stored,
            storing: None,
            stored_at: now,
            unstored: 0,
            keeping: Keeping::of(saved),
            guard: CrashGuard::default(),
            idle_limit: lease,
        };
        self.try_checkpoint(&mut session).await?;
        self.bound(&mut session);
        tracing::info!(
            shard = self.shard_number(),
            position = self.position(stored),
            read_to = self.position(start.state.hi),
            open = start.state.open.count(),
            after_crash = !(session.reader.suspects.is_empty() && session.suspected.is_empty()),
            "reading the log"
        );
        if matches!(session.keeping, Keeping::Nowhere { .. }) {
            tracing::warn!(
                max_ahead = self.options.max_ahead,
                "there is no table for the state of the log's reader, and this user may not make one: it is read no further \
                 than so many ids beyond the cursor, so that a restart repeats no more; run `posthaste migrate` as a user \
                 who may, and grant this one select, insert and update on log_readers"
            );
        }
        Ok(session)
    }

    /// Goes on where an earlier reader ended.
    pub(super) fn resume(&self, state: &ReaderState) -> LogReader {
        let reader = LogReader::resume(state, self.proof);
        if self.is_native() {
            reader.keeping_places()
        } else {
            reader
        }
    }

    async fn try_lock(&self, link: &mut Link) -> LogResult<bool> {
        let query = sqlx::query(self.statements.reading.lock.sql()).bind(&self.cursor_table);
        let query = of_shard(query, self.shard.as_ref());
        let row = query.fetch_one(&mut link.connection).await?;
        Ok(row.try_get("locked")?)
    }

    /// The server may not have missed this reader's earlier connection yet. That one's lock is as good as ours.
    async fn end_own(&self, link: &mut Link, pid: i32) -> LogResult<bool> {
        let query = sqlx::query(self.statements.reading.end_own.sql())
            .bind(&self.cursor_table)
            .bind(pid);
        let query = of_shard(query, self.shard.as_ref());
        let ended = query.fetch_optional(&mut link.connection).await?;
        let ended: Option<bool> = ended.map(|row| row.try_get("ended")).transpose()?;
        match ended {
            Some(true) => self.wait_for_lock(link).await,
            _ => Ok(false),
        }
    }

    /// Takes the lock of a connection that was ended.
    pub(super) async fn wait_for_lock(&self, link: &mut Link) -> LogResult<bool> {
        let begun = Instant::now();
        while begun.elapsed() < END_OWN_TIMEOUT {
            if self.try_lock(link).await? {
                return Ok(true);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(false)
    }
}

impl Log {
    /// A connection that the server ends if nothing is heard on it for a lease: a reader that is frozen or cut off must
    /// not keep its lock. Whatever it handed to a publisher was leased for no longer, counted from earlier.
    pub(super) async fn connect(&self, lease: Duration) -> LogResult<Link> {
        let mut connection = self.pool.connect_options().connect().await?;
        let pid = match self.own_process(&mut connection).await {
            Err(error) if LogError::is_shared_session(&error) => return Err(shared_session()),
            pid => pid?,
        };
        mark(connection, pid, lease).await
    }

    /// The same where a connection of this instance was looked at before.
    pub(super) async fn connect_beside(&self, lease: Duration) -> LogResult<Link> {
        let mut connection = self.pool.connect_options().connect().await?;
        let pid = process(&mut connection).await?;
        mark(connection, pid, lease).await
    }

    /// The server's process behind a connection. A pooler that shares out sessions by transaction would share the lock
    /// too: if another connection is answered by the same process, there is one. It may be missed here, when others are
    /// quicker; every claim looks at its mark as well.
    async fn own_process(&self, connection: &mut PgConnection) -> LogResult<i32> {
        let mut other = self.pool.connect_options().connect().await?;
        let pid = process(connection).await?;
        let shared = process(&mut other).await? == pid || process(connection).await? != pid;
        other.close().await?;
        if shared { Err(shared_session()) } else { Ok(pid) }
    }

    /// Whether the lock of a reader would be its own.
    pub(super) async fn check_session(&self) -> LogResult<()> {
        let mut connection = self.pool.connect_options().connect().await?;
        self.own_process(&mut connection).await?;
        connection.close().await?;
        Ok(())
    }
}

/// Makes a connection one that knows itself, and that the server ends if nothing is heard on it for a lease.
async fn mark(mut connection: PgConnection, pid: i32, lease: Duration) -> LogResult<Link> {
    let mark = uuid::Uuid::new_v4().to_string();
    let marked = async {
        limit_idling(&mut connection, lease).await?;
        // What is proved by locks takes a snapshot after it, in each statement; and no claim is refused for what others do.
        sqlx::query(
            "select set_config('jit', 'off', false), set_config('default_transaction_isolation', 'read committed', false),
                set_config('posthaste.reader', $1, false)",
        )
            .bind(&mark)
            .execute(&mut connection)
            .await?;
        Ok(())
    };
    match marked.await {
        Ok(()) => Ok(Link {
            connection,
            pid,
            mark,
            first_segment: None,
        }),
        Err(error) if LogError::is_shared_session(&error) => Err(shared_session()),
        Err(error) => Err(error),
    }
}

/// By a simple query, which every pooler passes on whole.
async fn process(connection: &mut PgConnection) -> LogResult<i32> {
    let row = sqlx::raw_sql("select pg_backend_pid() as pid")
        .fetch_one(connection)
        .await?;
    Ok(row.try_get("pid")?)
}

/// Why a pooler that shares out sessions cannot be read through.
pub(super) fn shared_session() -> LogError {
    LogError::refuse(
        "the reader's connection is shared with others, as behind PgBouncer with pool_mode = transaction, so its lock \
         would be shared too"
            .to_owned(),
        "give this relay the server's own address (database.direct_url), or a pool with pool_mode = session",
    )
}

async fn limit_idling(connection: &mut PgConnection, lease: Duration) -> LogResult<()> {
    // `idle_session_timeout` is there from PostgreSQL 14 on; before, only a peer that does not answer is noticed.
    sqlx::query(
        "select set_config(name, case name when 'lock_timeout' then $2::text else $1::text end, false) from pg_settings
         where name in ('idle_session_timeout', 'idle_in_transaction_session_timeout', 'tcp_user_timeout', 'lock_timeout')",
    )
    .bind(millis(lease).to_string())
    .bind(LOCK_TIMEOUT)
    .execute(connection)
    .await?;
    Ok(())
}

impl Link {
    /// Lets the server end it if nothing is heard on it for so long.
    pub(super) async fn limit_idling(&mut self, lease: Duration) -> LogResult<()> {
        limit_idling(&mut self.connection, lease).await
    }
}

impl Session {
    /// Shows the server that this reader lives, and finds out whether its connection does.
    pub(super) async fn stay(&mut self, lease: Duration) -> LogResult<()> {
        self.idle_limit = lease;
        limit_idling(self.connection()?, lease).await
    }

    /// Gives up the lock.
    pub(super) async fn close(self) -> LogResult<()> {
        let Some(mut link) = self.link else { return Ok(()) };
        // The server notices the end of a connection a little later; the next reader need not wait for that.
        sqlx::query("select pg_advisory_unlock_all()")
            .execute(&mut link.connection)
            .await?;
        link.connection.close().await?;
        Ok(())
    }
}
