//! The relay's verbs.

use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use posthaste_core::lifecycle::Settlement;
use posthaste_core::message::DEFAULT_NAMESPACE;
use posthaste_core::store::{
    Claim, ClaimRequest, ExtendRequest, Extended, GAUGE_BOUND, LeadRequest, Leadership, OutboxStats, PurgeRequest,
    Purged, RelayRegistry, RelayStore, Scope, Settled, StoreErrorKind, StoreRequirements, TableGauges, TopicBacklog,
    WorkerId,
};
use posthaste_core::wake::Listener;
use posthaste_core::{MessageId, StoreError};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;
use sqlx::types::Json;

use super::checkpoint::Handing;
use super::rows::pairs;
use super::session::Asking;
use super::{Inner, SqliteLogStore};
use crate::begin::begin;
use crate::rows::{id, millis};

#[async_trait]
impl RelayStore for SqliteLogStore {
    fn requirements(&self) -> StoreRequirements {
        StoreRequirements {
            // The table of failures has a column for it.
            undated_deaths: false,
            ..self.inner.map.requirements()
        }
    }

    /// Nothing while another relay reads; the next claim asks again.
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        refuse_parts(&request.scope)?;
        let inner = &*self.inner;
        inner.common.check_file()?;
        let mut session = inner.session.lock().await;
        inner
            .claim(&mut session, request)
            .await
            .map_err(|error| inner.error(error))
    }

    /// What was delivered is known to the reader alone until it is written down with others. What failed is written at once
    /// if that works; else it is remembered, and the next call writes it.
    async fn settle(&self, settlements: &[Settlement]) -> Result<Settled, StoreError> {
        let inner = &*self.inner;
        let all = || Settled::but(settlements.iter().map(|settlement| settlement.id).collect());
        let mut kept = inner.session.lock().await;
        let Some(session) = &mut *kept else { return Ok(all()) };
        let now = inner.now();
        // A call that was cut short asks no more.
        session.asking = Asking::default();
        let lost = session.apply(settlements, &inner.map, now);
        let flushed = inner.flush(session, false, now).await;
        session.asking = Asking::default();
        let refused = std::mem::take(&mut session.refusals);
        match flushed.map_err(|error| inner.error(error)) {
            Ok(true) => {}
            Ok(false) => {
                *kept = None;
                return Ok(all());
            }
            Err(error) => tracing::warn!(%error, "verdicts are remembered, and will be written with the next claim"),
        }
        Ok(Settled {
            refused,
            ..Settled::but(lost)
        })
    }

    async fn extend(&self, request: ExtendRequest<'_>) -> Result<Extended, StoreError> {
        let ExtendRequest { token, ids, lease } = request;
        let inner = &*self.inner;
        let mut kept = inner.session.lock().await;
        let Some(session) = &mut *kept else {
            return Ok(Extended::default());
        };
        let asked = inner.now();
        match inner.renew(session).await.map_err(|error| inner.error(error)) {
            Ok(true) => {}
            Ok(false) => {
                *kept = None;
                return Ok(Extended::default());
            }
            Err(error) if error.kind == StoreErrorKind::Contention => return Ok(Extended::busy(ids.to_vec())),
            Err(error) => return Err(error),
        }
        if let Some(until) = session.leases.get_mut(&token) {
            *until = asked + lease;
        }
        let retried = |id: &MessageId| {
            let retry = session.retries.get(id);
            retry.is_some_and(|retry| retry.token == token && retry.outcome.is_none())
        };
        let held = |id: &MessageId| session.fresh_row(*id, token).is_some() || retried(id);
        Ok(Extended::all(ids.iter().copied().filter(held).collect()))
    }

    /// At failed rows.
    async fn rescan(&self) {
        let inner = &*self.inner;
        if let Some(session) = &mut *inner.session.lock().await {
            session.retry_looks.at_once(inner.now());
        }
    }

    async fn sweep(&self, _scope: &Scope, max_attempts: u32) -> Result<Vec<MessageId>, StoreError> {
        let inner = &*self.inner;
        // What the reader is trying is known to itself.
        let kept = inner.session.lock().await;
        let Some(session) = &*kept else { return Ok(Vec::new()) };
        let swept = async {
            let mut connection = self.pool().acquire().await?;
            inner.sweep_failed(session, &mut connection, max_attempts).await
        };
        swept.await.map_err(|error| inner.error(error))
    }

    async fn purge(&self, request: &PurgeRequest) -> Result<Purged, StoreError> {
        // A row that may not be removed is no reason to keep the others.
        let delivered = self.inner.purge_delivered(request).await;
        let dead = self.inner.purge_dead(request).await;
        let dedupe = self.inner.purge_dedupe(request).await;
        let error = |error| self.inner.error(error);
        Ok(Purged {
            delivered: delivered.map_err(error)?,
            dead: dead.map_err(error)?,
            dedupe: dedupe.map_err(error)?,
            cursor: 0,
        })
    }

    async fn stats(&self, _namespace: &str) -> Result<OutboxStats, StoreError> {
        let counted = self.inner.count_to(i64::MAX).await;
        let counted = counted.map_err(|error| self.inner.error(error))?;
        Ok(counted.with_queue(&self.left_in_queue().await?))
    }

    async fn table_gauges(&self, _namespace: &str) -> Result<TableGauges, StoreError> {
        let gauges = async {
            let stats = self.inner.count_to(i64::from(GAUGE_BOUND) + 1).await?;
            let topics = self.inner.topic_gauges().await?;
            Ok(TableGauges {
                stats,
                topics,
                shards: Vec::new(),
            })
        };
        let gauges: TableGauges = gauges.await.map_err(|error| self.inner.error(error))?;
        Ok(TableGauges {
            stats: gauges.stats.with_queue(&self.left_in_queue().await?),
            ..gauges
        })
    }

    async fn elect_janitor(&self, request: &LeadRequest) -> Result<Leadership, StoreError> {
        self.inner.common.elect_janitor(request).await
    }

    async fn resign_janitor(&self, worker: WorkerId) -> Result<(), StoreError> {
        self.inner.common.resign_janitor(worker).await
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.inner.common.ping().await
    }

    fn registry(&self) -> Option<&dyn RelayRegistry> {
        self.inner.common.registry()
    }

    async fn listener(&self) -> Option<Box<dyn Listener>> {
        self.inner.common.listener().await
    }

    /// A reader that does not claim for a moment keeps its lease. One that does not for longer, because its circuit is open or it
    /// only stands by, lets others read.
    async fn keep_alive(&self) -> Result<(), StoreError> {
        let inner = &*self.inner;
        let mut kept = inner.session.lock().await;
        let Some(session) = &mut *kept else { return Ok(()) };
        if session.is_idle(inner.now()) {
            if inner.leave(session).await.map_err(|error| inner.error(error))? {
                tracing::info!("claimed nothing for the time of a lease; another relay may read the log");
                *kept = None;
            }
            return Ok(());
        }
        if !inner.renew(session).await.map_err(|error| inner.error(error))? {
            *kept = None;
        }
        Ok(())
    }

    /// Writes down how far the log is settled and lets the next one read, unless answers are still open: what was handed to
    /// a publisher may have been sent, so the lease runs out by itself.
    async fn close(&self) -> Result<(), StoreError> {
        let inner = &*self.inner;
        let mut kept = inner.session.lock().await;
        let Some(session) = &mut *kept else { return Ok(()) };
        if inner.leave(session).await.map_err(|error| inner.error(error))? {
            *kept = None;
        }
        Ok(())
    }

    /// Counted up to a bound, as for gauges.
    async fn left_in_queue(&self) -> Result<OutboxStats, StoreError> {
        let queue = self.inner.common.table_gauges(DEFAULT_NAMESPACE).await?;
        Ok(queue.stats)
    }

    async fn check_for(&self, scope: &Scope) -> Result<(), StoreError> {
        refuse_parts(scope)?;
        StoreError::refuse_left_in_queue(&self.left_in_queue().await?)?;
        self.stats("").await?;
        self.try_writes().await
    }
}

impl SqliteLogStore {
    /// What is to be delivered from the log alone, as long as nobody reads it. Counted up to a bound, as for gauges.
    pub(crate) async fn left_unread(&self) -> Result<OutboxStats, StoreError> {
        let inner = &*self.inner;
        let counted = async {
            if inner.is_read().await? {
                return Ok(OutboxStats::default());
            }
            inner.count_to(i64::from(GAUGE_BOUND) + 1).await
        };
        let counted = counted.await.map_err(|error| inner.error(error))?;
        Ok(OutboxStats { dead: 0, ..counted })
    }
}

impl Inner {
    /// Whether a relay reads the log, or one that did may come back: its lease runs.
    async fn is_read(&self) -> sqlx::Result<bool> {
        let reader = sqlx::query(self.statements.reading.reader.sql());
        let row = reader.fetch_one(self.common.pool()).await?;
        Ok(row.try_get::<Option<String>, _>("owner")?.is_some() && row.try_get("is_leased")?)
    }

    /// Writes down how far the log is settled and lets the next one read. Returns whether it does: not while answers are open.
    async fn leave(&self, session: &mut super::Session) -> sqlx::Result<bool> {
        let is_reader = self.write_down_with(session, Handing::Over, self.now()).await?;
        if is_reader && session.in_flight() > 0 {
            return Ok(false);
        }
        let release = sqlx::query(self.statements.reading.release_reader.sql());
        release.bind(session.epoch).execute(self.common.pool()).await?;
        Ok(true)
    }

    async fn claim(&self, kept: &mut Option<super::Session>, request: &ClaimRequest) -> sqlx::Result<Claim> {
        if !self.keep_reading(kept, request.worker, request.lease).await? {
            return Ok(Claim::default());
        }
        let Some(session) = kept else {
            return Ok(Claim::default());
        };
        session.claimed_at = self.now();
        session.asking = Asking::default();
        self.keep_sequence(session).await?;
        // Nothing more is handed out while what is known is not written down: after a restart it would all go out again.
        if !self.flush(session, false, self.now()).await? {
            *kept = None;
            return Ok(Claim::default());
        }
        let claim = self.claim_on(session, request).await?;
        if claim.messages.is_empty() {
            let at_rest = session.in_flight() == 0;
            if !self.flush(session, at_rest, self.now()).await? {
                *kept = None;
            }
        }
        Ok(claim)
    }

    async fn purge_delivered(&self, request: &PurgeRequest) -> sqlx::Result<u64> {
        let Some(keep) = request.delivered else { return Ok(0) };
        let old = self.find_old(keep, request.limit).await?;
        if old.is_empty() {
            return Ok(0);
        }
        let delete = sqlx::query(self.statements.upkeep.purge_delivered.sql()).bind(Json(old));
        Ok(delete.execute(self.common.pool()).await?.rows_affected())
    }

    /// Rows that may be removed, up to the first one that is too young. Looked for without the write lock, which producers wait for, and
    /// from where the last call found as many as it may: it has passed over those whose dead letters are kept.
    async fn find_old(&self, keep: Duration, limit: u32) -> sqlx::Result<Vec<i64>> {
        let (state, _) = self.state().await?;
        let last = state.position();
        let after = self.purged_to.swap(i64::MIN, Ordering::Relaxed);
        let mut old = self.find_old_after(after, last, keep, limit).await?;
        if after > i64::MIN && old.len() < limit as usize {
            // They may be kept no longer.
            old = self.find_old_after(i64::MIN, last, keep, limit).await?;
        }
        if let Some(last) = old.last().filter(|_| old.len() >= limit as usize) {
            self.purged_to.store(*last, Ordering::Relaxed);
        }
        Ok(old)
    }

    async fn find_old_after(&self, mut after: i64, last: i64, keep: Duration, limit: u32) -> sqlx::Result<Vec<i64>> {
        let mut old = Vec::new();
        loop {
            let rows = sqlx::query(self.statements.upkeep.find_old.sql())
                .bind(millis(keep))
                .bind(i64::from(limit))
                .bind(last)
                .bind(after)
                .fetch_all(self.common.pool())
                .await?;
            for row in &rows {
                if row.try_get("is_young")? || old.len() >= limit as usize {
                    return Ok(old);
                }
                after = row.try_get("seq")?;
                // One with a time that is none, or in the future, is neither.
                if row.try_get("is_old")? && !row.try_get::<bool, _>("is_kept")? {
                    old.push(after);
                }
            }
            if rows.len() < limit as usize || rows.is_empty() {
                return Ok(old);
            }
        }
    }

    async fn purge_dead(&self, request: &PurgeRequest) -> sqlx::Result<Vec<MessageId>> {
        let Some(keep) = request.dead else {
            return Ok(Vec::new());
        };
        let mut tx = begin(self.common.pool()).await?;
        let old = sqlx::query(self.statements.upkeep.purge_dead.sql())
            .bind(millis(keep))
            .bind(i64::from(request.limit));
        let ids = self.ids_in_order(&old.fetch_all(&mut *tx).await?)?;
        // Without its dead letter it would look like a delivered one.
        if !ids.is_empty() {
            let rows = sqlx::query(self.statements.upkeep.discard_rows.sql()).bind(Json(&ids));
            rows.execute(&mut *tx).await?;
        }
        tx.commit().await?;
        Ok(ids)
    }

    async fn purge_dedupe(&self, request: &PurgeRequest) -> sqlx::Result<u64> {
        if !request.dedupe {
            return Ok(0);
        }
        let free = sqlx::query(self.statements.upkeep.purge_dedupe.sql()).bind(i64::from(request.limit));
        Ok(free.execute(self.common.pool()).await?.rows_affected())
    }

    /// Counts at most so many rows of a kind.
    async fn count_to(&self, bound: i64) -> sqlx::Result<OutboxStats> {
        let (state, in_flight) = self.state().await?;
        let row = sqlx::query(self.statements.upkeep.stats.sql())
            .bind(state.hi)
            .bind(Json(pairs(&state.open)))
            .bind(bound)
            .fetch_one(self.common.pool())
            .await?;
        let number = |name: &str| Ok::<_, sqlx::Error>(u64::try_from(row.try_get::<i64, _>(name)?).unwrap_or(0));
        let processing = in_flight.fresh + in_flight.retried;
        Ok(OutboxStats {
            pending: number("pending")?.saturating_sub(processing),
            waiting: number("waiting")?,
            processing,
            dead: number("dead")?,
            oldest_seconds: Duration::from_millis(number("oldest_ms")?).as_secs_f64(),
        })
    }

    async fn topic_gauges(&self) -> sqlx::Result<Vec<TopicBacklog>> {
        let (state, _) = self.state().await?;
        let query = sqlx::query(self.statements.upkeep.topic_gauges.sql())
            .bind(state.hi)
            .bind(i64::from(GAUGE_BOUND));
        let topic = |row: &SqliteRow| {
            let oldest = u64::try_from(row.try_get::<i64, _>("oldest_ms")?).unwrap_or(0);
            Ok(TopicBacklog {
                topic: row.try_get("topic")?,
                pending: row.try_get::<i64, _>("pending")?.cast_unsigned(),
                oldest_seconds: Duration::from_millis(oldest).as_secs_f64(),
            })
        };
        query.fetch_all(self.common.pool()).await?.iter().map(topic).collect()
    }

    /// The ids of changed rows by their place in the log; `RETURNING` gives them in any order.
    pub(super) fn ids_in_order(&self, rows: &[SqliteRow]) -> sqlx::Result<Vec<MessageId>> {
        let place = |row: &SqliteRow| Ok::<(i64, i64), sqlx::Error>((row.try_get("log_id")?, row.try_get("number")?));
        let mut placed = Vec::with_capacity(rows.len());
        for row in rows {
            placed.push((place(row)?, id(row, "id", &self.map)?));
        }
        placed.sort_by_key(|(place, _)| *place);
        Ok(placed.into_iter().map(|(_, id)| id).collect())
    }
}

/// There is one reader, so a relay that passed over other topics would lose them.
fn refuse_parts(scope: &Scope) -> Result<(), StoreError> {
    if scope.namespace != DEFAULT_NAMESPACE {
        return Err(StoreError::no_namespaces(&scope.namespace));
    }
    if scope.topics.is_empty() && scope.tenant.is_none() {
        return Ok(());
    }
    Err(StoreError::unsupported(
        "a log has one reader, so a relay cannot serve a part of it",
        Some("leave out scope.topics and scope.tenant"),
    ))
}
