//! One reader of a log: what a relay asks of it.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use posthaste_core::lifecycle::{LeaseToken, Settlement};
use posthaste_core::store::{Claim, ClaimRequest, RefusedVerdict, Settled};
use posthaste_core::{MessageId, StoreError};
use sqlx::{PgExecutor, Row};
use tokio::sync::Mutex;

use super::contention::Contention;
use super::error::{LogError, LogResult};
use super::load::{AtomicLoad, Load};
use super::reader_lock::ReaderLock;
use super::relay_store::say_refused;
use super::rows::{failed_id, failed_number};
use super::settle::Unwritten;
use super::{Log, Shard, of_shard};

/// A reader of a log, or of one of its shards.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) log: Arc<Log>,
    /// The part of the log that is read, where it has parts.
    pub(super) shard: Option<Shard>,
    pub(super) lock: Mutex<ReaderLock>,
    /// How much of it is in flight, for the other readers of this process.
    load: AtomicLoad,
    /// Its last claim found nothing.
    is_idle: AtomicBool,
    /// It let go of its connection for another reader of this process, and nobody else reads its shard meanwhile.
    rests: AtomicBool,
    /// Another one has its lock.
    pub(super) contention: Contention,
}

/// Why a reader lets go of its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leave {
    /// Its shard is another relay's.
    ForGood,
    /// Another reader of this process needs its connection.
    ForNow,
    /// The relay ends.
    AtTheEnd,
}

/// A reader has all that its log has.
impl Deref for Reader {
    type Target = Log;

    fn deref(&self) -> &Log {
        &self.log
    }
}

impl Reader {
    pub(super) fn new(log: &Arc<Log>, shard: Option<Shard>) -> Self {
        Self {
            log: Arc::clone(log),
            shard,
            lock: Mutex::default(),
            load: AtomicLoad::default(),
            is_idle: AtomicBool::new(false),
            rests: AtomicBool::new(false),
            contention: Contention::default(),
        }
    }

    /// Whether it has a connection, or will have again the one that it lost.
    pub(super) fn is_connected(&self) -> bool {
        // Whoever has it locked works with it.
        self.lock.try_lock().map_or(true, |lock| {
            !matches!(*lock, ReaderLock::Disconnected | ReaderLock::GivenUp)
        })
    }

    /// Whether it reads, as far as can be told without waiting.
    pub(super) fn seems_to_read(&self) -> bool {
        let reads = |lock: &ReaderLock| lock.session().is_some() || self.rests.load(Ordering::Relaxed);
        // Whoever has it locked works with it.
        self.lock.try_lock().map_or(true, |lock| reads(&lock))
    }

    /// Whether its last claim found nothing.
    pub(super) fn is_idle(&self) -> bool {
        self.is_idle.load(Ordering::Relaxed)
    }

    /// How much of it is in flight.
    pub(super) fn load(&self) -> Load {
        self.load.get()
    }

    /// Who has this locked may still commit rows: the table with all that belongs to it, or the shard's sequence.
    pub(super) fn lock_source(&self) -> &str {
        self.shard.as_ref().map_or(&self.table, |shard| &shard.sequence)
    }

    /// The cursor as it is stored.
    pub(super) async fn stored_cursor<'e>(&self, on: impl PgExecutor<'e>) -> sqlx::Result<i64> {
        let query = of_shard(sqlx::query(self.statements.reading.cursor.sql()), self.shard.as_ref());
        let stored = query.persistent(false).fetch_optional(on).await?;
        stored.map_or(Ok(0), |row| row.try_get("position"))
    }

    /// Whether another relay has the seat of this reader by now.
    pub(super) async fn is_fenced<'e>(&self, on: impl PgExecutor<'e>) -> sqlx::Result<bool> {
        let Some(shard) = &self.shard else { return Ok(false) };
        let query = of_shard(sqlx::query(self.statements.reading.cursor.sql()), Some(shard));
        let row = query.fetch_one(on).await?;
        Ok(row.try_get::<i64, _>("epoch")? != shard.epoch)
    }

    /// Nothing while another one has the lock; the next claim asks again.
    /// `others` is what other readers of this process have in flight: what must be alone is alone among all.
    pub(super) async fn claim(&self, request: &ClaimRequest, others: usize) -> LogResult<Claim> {
        let mut lock = self.lock.lock().await;
        self.load.set(None);
        self.is_idle.store(true, Ordering::Relaxed);
        let Some(session) = self.acquire_lock(&mut lock, request.lease).await? else {
            return Ok(Claim::default());
        };
        self.rests.store(false, Ordering::Relaxed);
        let claim = self.claim_on(session, request, others).await;
        session.end_use(&claim);
        let found_nothing = claim.as_ref().is_ok_and(|claim| claim.messages.is_empty());
        self.is_idle.store(found_nothing, Ordering::Relaxed);
        self.load.set(Some(session));
        claim
    }

    /// Verdicts on fresh rows that were delivered live in memory until the cursor is stored. Those that have to be written
    /// are written at once if that works; else they stay in memory, and the next call writes them.
    pub(super) async fn settle(&self, settlements: &[Settlement]) -> LogResult<Settled> {
        let all = || settlements.iter().map(|settlement| settlement.id).collect();
        let now = self.now();
        let mut lock = self.lock.lock().await;
        let Some(session) = self.keep_lock(&mut lock).await? else {
            return Ok(Settled::but(all()));
        };
        let lost = session.apply(settlements, &self.map, now);
        self.load.set(Some(session));
        let mut written = self.write_down(&mut lock, settlements, now).await;
        if written.as_ref().is_err_and(LogError::ends_connection) {
            // Another connection, if this one can have the lock again; if not, another relay reads.
            match self.keep_lock(&mut lock).await {
                Ok(Some(_)) => written = self.write_down(&mut lock, settlements, now).await,
                Ok(None) => return Ok(Settled::but(all())),
                Err(error) => written = Err(error),
            }
        }
        let Unwritten { refused, busy } = written.unwrap_or_else(|error| {
            let error = StoreError::from(error);
            tracing::warn!(%error, "verdicts are remembered, and will be written with the next claim");
            Unwritten::default()
        });
        let asked = |refused: &RefusedVerdict| settlements.iter().any(|settlement| settlement.id == refused.id);
        let (refused, others): (Vec<_>, Vec<_>) = refused.into_iter().partition(asked);
        say_refused(&others);
        Ok(Settled { lost, refused, busy })
    }

    /// Writes verdicts and, now and then, the cursor.
    async fn write_down(
        &self,
        lock: &mut ReaderLock,
        settlements: &[Settlement],
        now: Instant,
    ) -> LogResult<Unwritten> {
        let Some(session) = lock.session_mut() else {
            return Ok(Unwritten::default());
        };
        session.in_use = true;
        let written = async {
            let unwritten = self.flush(session, settlements, now).await?;
            let at_rest = false;
            self.checkpoint(session, at_rest, now).await?;
            Ok(unwritten)
        };
        let written = written.await;
        session.end_use(&written);
        written
    }

    /// Prolongs a lease; says which of these rows are held under it.
    pub(super) async fn extend(
        &self,
        token: LeaseToken,
        ids: &[MessageId],
        lease: Duration,
    ) -> LogResult<Vec<MessageId>> {
        let mut lock = self.lock.lock().await;
        let asked = self.now();
        if lock
            .session()
            .is_none_or(|session| !session.leases.contains_key(&token))
        {
            return Ok(Vec::new());
        }
        let Some(session) = self.keep_lock(&mut lock).await? else {
            return Ok(Vec::new());
        };
        let stayed = session.stay(lease).await;
        session.end_use(&stayed);
        stayed?;
        if let Some(until) = session.leases.get_mut(&token) {
            *until = asked + lease;
        }
        let fresh = |id: &MessageId| id.number().is_some_and(|row| session.reader.window.is_held(row, token));
        let retried = |id: &MessageId| failed_number(*id).is_some_and(|row| session.is_retried(row, token));
        Ok(ids.iter().copied().filter(|id| fresh(id) || retried(id)).collect())
    }

    /// Gives up what was tried often enough. Through the reader's lock: a relay that does not read must not give up what the
    /// reader is trying. Nothing waits any more for what was suspected of having killed an earlier one.
    pub(super) async fn sweep(&self, allowed: u32) -> LogResult<Vec<MessageId>> {
        let mut lock = self.lock.lock().await;
        let Some(session) = self.keep_lock(&mut lock).await? else {
            return Ok(Vec::new());
        };
        let given_up = async {
            let query = sqlx::query(self.statements.failures.sweep.sql())
                .bind(i64::from(allowed))
                .bind(i64::from(self.options.max_retries));
            let rows = of_shard(query, self.shard.as_ref())
                .fetch_all(session.connection()?)
                .await?;
            let numbers = rows.iter().map(|row| row.try_get("id"));
            Ok(numbers.collect::<sqlx::Result<_>>()?)
        };
        let given_up: LogResult<Vec<i64>> = given_up.await;
        session.end_use(&given_up);
        let given_up = given_up?;
        for number in &given_up {
            session.suspected.forget(*number);
        }
        Ok(given_up.into_iter().map(failed_id).collect())
    }

    /// The next claim looks at failed rows, too.
    pub(super) async fn rescan(&self) {
        if let Some(session) = self.lock.lock().await.session_mut() {
            session.retry_looks.at_once(self.now());
        }
    }

    pub(super) async fn keep_alive(&self) -> LogResult<()> {
        let mut lock = self.lock.lock().await;
        let Some(session) = self.keep_lock(&mut lock).await? else {
            return Ok(());
        };
        let stayed = session.stay(session.idle_limit).await;
        session.end_use(&stayed);
        stayed
    }

    /// Whether it has the log, as far as it knows.
    pub(super) async fn reads(&self) -> bool {
        let lock = self.lock.lock().await;
        match lock.session() {
            Some(session) => session.link.is_some(),
            None => self.rests.load(Ordering::Relaxed),
        }
    }

    /// Whether it has handed out this failed row.
    pub(super) async fn retries(&self, row: i64) -> bool {
        let lock = self.lock.lock().await;
        lock.session().is_some_and(|session| session.retries.contains_key(&row))
    }

    /// Stores how far it is and lets the next one read, unless answers are still open: what was handed to a publisher may
    /// have been sent, so the lock is kept until the server ends it. Says whether it was given up.
    pub(super) async fn close(&self, leave: Leave) -> LogResult<bool> {
        let next = || match leave {
            Leave::ForGood => ReaderLock::GivenUp,
            Leave::ForNow | Leave::AtTheEnd => ReaderLock::Disconnected,
        };
        let goes_on = leave != Leave::AtTheEnd;
        let mut lock = self.lock.lock().await;
        let Some(session) = self.keep_lock(&mut lock).await? else {
            if goes_on && !matches!(*lock, ReaderLock::GivenUp) {
                *lock = next();
            }
            return Ok(true);
        };
        let at_rest = session.in_flight() == 0;
        if goes_on && !at_rest {
            session.in_use = false;
            return Ok(false);
        }
        let left = async {
            let now = self.now();
            say_refused(&self.flush(session, &[], now).await?.refused);
            self.end(session, now).await
        };
        let left = left.await;
        session.end_use(&left);
        left?;
        // Verdicts that could not be written are still to be.
        if !at_rest || (goes_on && session.has_unwritten()) {
            return Ok(false);
        }
        self.load.set(None);
        self.rests.store(leave == Leave::ForNow, Ordering::Relaxed);
        if let ReaderLock::Held(session) = std::mem::replace(&mut *lock, next()) {
            session.close().await?;
        }
        Ok(true)
    }

    /// Another instance has it: what is known is void, and the connection is ended, which ends the lock.
    pub(super) async fn give_up(&self) {
        *self.lock.lock().await = ReaderLock::GivenUp;
    }
}
