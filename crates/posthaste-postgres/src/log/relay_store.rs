//! The relay's verbs.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use posthaste_core::lifecycle::Settlement;
use posthaste_core::store::{
    Claim, ClaimRequest, ExtendRequest, Extended, LeadRequest, Leadership, OutboxStats, PurgeRequest, Purged,
    RefusedVerdict, RelayRegistry, RelayStore, Scope, Settled, StoreRequirements,
};
use posthaste_core::wake::Listener;
use posthaste_core::{MessageId, StoreError};
use posthaste_sql::table::{Role, Table};
use sqlx::Row;
use uuid::Uuid;

use super::error::{LogError, LogResult};
use super::reader_lock::ReaderLock;
use super::rows::{failed_id, failed_number};
use super::settle::Unwritten;
use super::{Inner, PostgresLogStore, of_shard};
use crate::error::store_error;
use crate::pooling;
use crate::rows::millis;

#[async_trait]
impl RelayStore for PostgresLogStore {
    fn requirements(&self) -> StoreRequirements {
        self.inner.map.requirements()
    }

    /// Nothing while another reader has the log; the next claim asks again.
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        refuse_parts(&request.scope)?;
        let inner = &*self.inner;
        let mut lock = inner.reader_lock.lock().await;
        let Some(session) = inner.acquire_lock(&mut lock, request.lease).await? else {
            return Ok(Claim::default());
        };
        let claim = inner.claim_on(session, request).await;
        session.end_use(&claim);
        Ok(claim?)
    }

    /// Verdicts on fresh rows that were delivered live in memory until the cursor is stored. Those that have to be written
    /// are written at once if that works; else they stay in memory, and the next call writes them.
    async fn settle(&self, settlements: &[Settlement]) -> Result<Settled, StoreError> {
        let inner = &*self.inner;
        let all = || settlements.iter().map(|settlement| settlement.id).collect();
        let now = inner.now();
        let mut lock = inner.reader_lock.lock().await;
        let Some(session) = inner.keep_lock(&mut lock).await? else {
            return Ok(Settled::but(all()));
        };
        let lost = session.apply(settlements, &inner.map, now);
        let mut written = inner.write_down(&mut lock, settlements, now).await;
        if written.as_ref().is_err_and(LogError::ends_connection) {
            // Another connection, if this one can have the lock again; if not, another relay reads.
            match inner.keep_lock(&mut lock).await {
                Ok(Some(_)) => written = inner.write_down(&mut lock, settlements, now).await,
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

    async fn extend(&self, request: ExtendRequest<'_>) -> Result<Extended, StoreError> {
        let ExtendRequest { token, ids, lease } = request;
        let inner = &*self.inner;
        let mut lock = inner.reader_lock.lock().await;
        let asked = inner.now();
        let Some(session) = inner.keep_lock(&mut lock).await? else {
            return Ok(Extended::default());
        };
        let stayed = session.stay(lease).await;
        session.end_use(&stayed);
        stayed?;
        if let Some(until) = session.leases.get_mut(&token) {
            *until = asked + lease;
        }
        let fresh = |id: &MessageId| id.number().is_some_and(|row| session.reader.window.is_held(row, token));
        let retried = |id: &MessageId| failed_number(*id).is_some_and(|row| session.is_retried(row, token));
        let held = ids.iter().copied().filter(|id| fresh(id) || retried(id));
        Ok(Extended::all(held.collect()))
    }

    async fn sweep(&self, _scope: &Scope, max_attempts: u32) -> Result<Vec<MessageId>, StoreError> {
        let native = self.inner.is_native();
        let allowed = if native {
            max_attempts
        } else {
            max_attempts.saturating_sub(1)
        };
        if !native && allowed >= self.inner.options.max_retries {
            return Ok(Vec::new());
        }
        // Through the reader's lock: a relay that does not read must not give up what the reader is trying.
        let mut lock = self.inner.reader_lock.lock().await;
        let Some(session) = self.inner.keep_lock(&mut lock).await? else {
            return Ok(Vec::new());
        };
        let given_up = async {
            let query = sqlx::query_scalar(self.inner.statements.failures.sweep.sql())
                .bind(i64::from(allowed))
                .bind(i64::from(self.inner.options.max_retries));
            let rows: Vec<i64> = query.fetch_all(session.connection()?).await?;
            Ok(rows.into_iter().map(failed_id).collect())
        };
        let given_up: LogResult<Vec<MessageId>> = given_up.await;
        session.end_use(&given_up);
        Ok(given_up?)
    }

    async fn purge(&self, request: &PurgeRequest) -> Result<Purged, StoreError> {
        let inner = &*self.inner;
        let mut removed = Purged::default();
        if let Some(keep) = request.dead {
            removed.dead = self.purge_dead(keep, request.limit).await?;
        }
        if let Some(beside) = &inner.beside {
            // What was redirected is in the queue as delivered.
            let queue = PurgeRequest {
                dead: None,
                cursor: None,
                ..request.clone()
            };
            let beside = beside.purge(&queue).await?;
            removed.dedupe = beside.dedupe;
            removed.delivered = beside.delivered;
        }
        if let Some(tables) = inner.tables.as_ref().filter(|_| request.dead.is_none()) {
            removed.delivered += tables.tend_segments(request.delivered).await?.rows;
        }
        let Some(statements) = &inner.statements.cursors else {
            return Ok(removed);
        };
        if let Some(keep) = request.cursor
            && inner.map.has((Table::Cursor, Role::CreatedAt))
        {
            let old = sqlx::query(statements.purge_cursor.sql())
                .bind(millis(keep))
                .bind(i64::from(request.limit));
            removed.cursor = inner.execute_bounded(old).await.map_err(store_error)?;
        }
        if let Some(keep) = request.delivered
            && inner.options.purge_log
        {
            let old = sqlx::query(statements.purge_log.sql())
                .bind(millis(keep))
                .bind(i64::from(request.limit))
                .bind(self.stored_cursor().await?);
            removed.delivered = inner.execute_bounded(old).await.map_err(store_error)?;
        }
        Ok(removed)
    }

    /// The one that reads the log looks after it.
    async fn elect_janitor(&self, request: &LeadRequest) -> Result<Leadership, StoreError> {
        let lock = self.inner.reader_lock.lock().await;
        if lock.session().is_some_and(|session| session.link.is_some()) {
            return Ok(Leadership::Held);
        }
        let (worker, left) = (Uuid::nil(), request.lease);
        Ok(Leadership::HeldBy { worker, left })
    }

    async fn stats(&self, _namespace: &str) -> Result<OutboxStats, StoreError> {
        let known = self.known().await?;
        let (first, last): (Vec<i64>, Vec<i64>) =
            known.waiting.iter().map(|range| (*range.start(), *range.end())).unzip();
        let query = sqlx::query(self.inner.statements.upkeep.stats.sql())
            .bind(first)
            .bind(last)
            .bind(i64::from(self.inner.options.max_retries))
            .bind(known.retried.iter().copied().collect::<Vec<_>>());
        let row = of_shard(query, self.inner.shard.as_ref())
            .fetch_one(&self.inner.pool)
            .await
            .map_err(store_error)?;
        let count = |name: &str| row.try_get::<i64, _>(name).map(i64::cast_unsigned).map_err(store_error);
        let (dead, failed): (Vec<_>, Vec<_>) = known.failures.values().partition(|failure| failure.dead);
        let waiting = failed.iter().filter(|failure| !failure.delay.is_zero()).count() + known.postponed;
        Ok(OutboxStats {
            pending: count("pending")? + failed.len() as u64,
            waiting: count("waiting")? + waiting as u64,
            processing: (known.in_flight.len() + known.retried.len()) as u64,
            dead: count("dead")? + dead.len() as u64,
            oldest_seconds: row.try_get::<f64, _>("oldest_seconds").map_err(store_error)?.max(0.0),
        })
    }

    fn registry(&self) -> Option<&dyn RelayRegistry> {
        self.inner.beside.as_ref()?.registry()
    }

    async fn listener(&self) -> Option<Box<dyn Listener>> {
        self.inner.beside.as_ref()?.listener().await
    }

    async fn ping(&self) -> Result<(), StoreError> {
        pooling::ping(&self.inner.pool).await.map_err(store_error)
    }

    /// A reader that has nothing to do, such as one whose circuit is open, must let the server hear that it lives.
    async fn keep_alive(&self) -> Result<(), StoreError> {
        let inner = &*self.inner;
        let mut lock = inner.reader_lock.lock().await;
        let Some(session) = inner.keep_lock(&mut lock).await? else {
            return Ok(());
        };
        let stayed = session.stay(session.idle_limit).await;
        session.end_use(&stayed);
        Ok(stayed?)
    }

    /// Stores the cursor and lets the next one read, unless answers are still open: what was handed to a publisher may
    /// have been sent, so the lock is kept until the server ends it.
    async fn close(&self) -> Result<(), StoreError> {
        let inner = &*self.inner;
        let mut lock = inner.reader_lock.lock().await;
        let Some(session) = inner.keep_lock(&mut lock).await? else {
            return Ok(());
        };
        let at_rest = session.in_flight() == 0;
        let left = async {
            let now = inner.now();
            say_refused(&inner.flush(session, &[], now).await?.refused);
            inner.checkpoint(session, true, now).await
        };
        let left = left.await;
        session.end_use(&left);
        left?;
        if at_rest && let ReaderLock::Held(session) = std::mem::take(&mut *lock) {
            session.close().await?;
        }
        Ok(())
    }

    async fn check_for(&self, scope: &Scope) -> Result<(), StoreError> {
        refuse_parts(scope)?;
        self.check_shards().await?;
        self.inner.check_session().await?;
        self.check_ids().await?;
        self.check_lengths().await?;
        self.stats("").await?;
        self.try_writes().await
    }
}

impl Inner {
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
}

/// Says what the database refuses where no verdict's answer can.
pub(super) fn say_refused(refused: &[RefusedVerdict]) {
    for RefusedVerdict { id, error } in refused {
        tracing::error!(row = %id, %error, "a verdict was refused");
    }
}

impl PostgresLogStore {
    /// The cursor as it is stored.
    pub(super) async fn stored_cursor(&self) -> Result<i64, StoreError> {
        self.inner.stored_cursor(&self.inner.pool).await.map_err(store_error)
    }

    /// Removes what was given up long ago.
    async fn purge_dead(&self, keep: Duration, limit: u32) -> Result<Vec<MessageId>, StoreError> {
        let inner = &*self.inner;
        let dying = inner.statements.dying.as_ref();
        let dying = dying.ok_or_else(|| StoreError::no_time_of_death(inner.map.name()))?;
        let removed = async {
            let mut tx = inner.begin_bounded().await?;
            let query = sqlx::query_scalar(dying.purge_dead.sql())
                .bind(millis(keep))
                .bind(i64::from(limit));
            let removed: Vec<i64> = query.fetch_all(&mut *tx).await?;
            tx.commit().await?;
            Ok(removed)
        };
        let removed = removed.await.map_err(store_error)?;
        Ok(removed.into_iter().map(failed_id).collect())
    }
}

/// There is one cursor, so a relay that passed over other topics would lose them.
fn refuse_parts(scope: &Scope) -> Result<(), StoreError> {
    if scope.topics.is_empty() && scope.tenant.is_none() {
        return Ok(());
    }
    Err(StoreError::unsupported(
        "a log has one cursor, so a relay cannot serve a part of it",
        Some("leave out scope.topics and scope.tenant"),
    ))
}
