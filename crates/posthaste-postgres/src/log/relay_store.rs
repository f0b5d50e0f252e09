//! The relay's verbs.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use posthaste_core::lifecycle::{LeaseToken, Settlement};
use posthaste_core::store::{
    Claim, ClaimRequest, LeadRequest, Leadership, OutboxStats, RelayBeat, RelayStore, Scope, Settled, StoreErrorKind,
    WorkerId,
};
use posthaste_core::{MessageId, StoreError};
use sqlx::Row;

use super::PostgresLogStore;
use super::rows::failed_id;
use super::session::Seat;
use crate::error::store_error;
use crate::rows::millis;

#[async_trait]
impl RelayStore for PostgresLogStore {
    /// Nothing while another reader has the log; the next claim asks again.
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        refuse_parts(&request.scope)?;
        let inner = &*self.inner;
        let mut seat = inner.seat.lock().await;
        let claim = async {
            let taken = seat.take(
                &inner.pool,
                &inner.statements,
                &inner.cursor_table,
                inner.proof,
                request.lease,
            );
            match taken.await? {
                Some(session) => inner.claim_on(session, request).await,
                None => Ok(Claim::default()),
            }
        };
        let claim = claim.await;
        leave_after_an_error(&mut seat, claim)
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<Settled, StoreError> {
        let mut seat = self.inner.seat.lock().await;
        let Some(session) = seat.session_mut() else {
            return Ok(Settled::but(
                settlements.iter().map(|settlement| settlement.id).collect(),
            ));
        };
        let lost = self.inner.settle_on(session, settlements).await;
        leave_after_an_error(&mut seat, lost).map(Settled::but)
    }

    async fn extend(
        &self,
        token: LeaseToken,
        ids: &[MessageId],
        lease: Duration,
    ) -> Result<Vec<MessageId>, StoreError> {
        let mut seat = self.inner.seat.lock().await;
        let Some(session) = seat.session_mut() else {
            return Ok(Vec::new());
        };
        let asked = Instant::now();
        let stayed = session.stay(lease).await;
        if stayed.is_ok()
            && let Some(until) = session.leases.get_mut(&token)
        {
            *until = asked + lease;
        }
        let fresh = |id: &MessageId| id.number().is_some_and(|row| session.reader.window.is_held(row, token));
        let retried = |id: &MessageId| session.retries.get(id).is_some_and(|retry| retry.token == token);
        let held = ids.iter().copied().filter(|id| fresh(id) || retried(id)).collect();
        leave_after_an_error(&mut seat, stayed.map(|()| held))
    }

    async fn sweep(&self, _scope: &Scope, max_attempts: u32) -> Result<Vec<MessageId>, StoreError> {
        let allowed = max_attempts.saturating_sub(1);
        if allowed >= self.inner.options.max_retries {
            return Ok(Vec::new());
        }
        // Through the seat: a relay that does not read must not give up what the reader is trying.
        let mut seat = self.inner.seat.lock().await;
        let Some(session) = seat.session_mut() else {
            return Ok(Vec::new());
        };
        let rows = sqlx::query_scalar(self.inner.statements.sweep.sql())
            .bind(i64::from(allowed))
            .bind(i64::from(self.inner.options.max_retries))
            .fetch_all(&mut session.connection)
            .await;
        let events: Vec<String> = leave_after_an_error(&mut seat, rows)?;
        Ok(events.iter().map(|event| failed_id(event)).collect())
    }

    async fn purge(&self, keep: Duration, limit: u32) -> Result<u64, StoreError> {
        let inner = &*self.inner;
        let mut removed = 0;
        if inner.map.has("cursor/created_at") {
            let rows = sqlx::query(inner.statements.purge_cursor.sql())
                .bind(millis(keep))
                .bind(i64::from(limit))
                .execute(&inner.pool)
                .await
                .map_err(store_error)?;
            removed += rows.rows_affected();
        }
        if inner.options.purge_log && removed < u64::from(limit) {
            let rows = sqlx::query(inner.statements.purge_log.sql())
                .bind(millis(keep))
                .bind(i64::from(limit))
                .bind(self.stored_cursor().await?)
                .execute(&inner.pool)
                .await
                .map_err(store_error)?;
            removed += rows.rows_affected();
        }
        Ok(removed)
    }

    async fn stats(&self, _namespace: &str) -> Result<OutboxStats, StoreError> {
        let (unread, in_flight) = self.unread().await?;
        let (first, last): (Vec<i64>, Vec<i64>) = unread.iter().map(|range| (*range.start(), *range.end())).unzip();
        let row = sqlx::query(self.inner.statements.stats.sql())
            .bind(first)
            .bind(last)
            .bind(i64::from(self.inner.options.max_retries))
            .fetch_one(&self.inner.pool)
            .await
            .map_err(store_error)?;
        let count = |name: &str| row.try_get::<i64, _>(name).map(i64::cast_unsigned).map_err(store_error);
        Ok(OutboxStats {
            pending: count("pending")?,
            waiting: count("waiting")?,
            processing: in_flight as u64,
            dead: count("dead")?,
            oldest_seconds: row.try_get::<f64, _>("oldest_seconds").map_err(store_error)?.max(0.0),
        })
    }

    /// There is no list of relays beside these tables.
    async fn beat(&self, _beat: &RelayBeat) -> Result<(), StoreError> {
        Ok(())
    }

    async fn lead(&self, _request: &LeadRequest) -> Result<Leadership, StoreError> {
        Err(StoreError {
            kind: StoreErrorKind::Other,
            message: "a log has one reader at a time by itself".to_owned(),
            remedy: Some("leave out `exclusive`; the others stand by without it"),
            source: None,
        })
    }

    /// Stores the cursor and lets the next one read, unless answers are still open: what was handed to a publisher may
    /// have been sent, so the seat is kept until the server ends it.
    async fn leave(&self, _worker: WorkerId) -> Result<(), StoreError> {
        let mut seat = self.inner.seat.lock().await;
        let Some(session) = seat.session_mut() else {
            return Ok(());
        };
        let at_rest = session.in_flight() == 0;
        let stored = session.store_cursor(&self.inner.statements, true).await;
        leave_after_an_error(&mut seat, stored)?;
        if at_rest && let Seat::Taken(session) = std::mem::take(&mut *seat) {
            session.close().await.map_err(store_error)?;
        }
        Ok(())
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.check_sequence().await?;
        self.stats("").await.map(drop)
    }
}

impl PostgresLogStore {
    /// The cursor as it is stored.
    pub(super) async fn stored_cursor(&self) -> Result<i64, StoreError> {
        let stored: Option<i64> = sqlx::query_scalar(self.inner.statements.cursor.sql())
            .fetch_optional(&self.inner.pool)
            .await
            .map_err(store_error)?;
        Ok(stored.unwrap_or(0))
    }

    /// The proof needs ids that are given out in order, inside the insert. A sequence with a cache gives them out before.
    async fn check_sequence(&self) -> Result<(), StoreError> {
        let Some(id) = self.inner.map.column("id") else {
            return Ok(());
        };
        let row = sqlx::query(self.inner.statements.sequence.sql())
            .bind(&self.inner.table)
            .bind(id.name.as_str())
            .fetch_optional(&self.inner.pool)
            .await
            .map_err(store_error)?;
        let Some(row) = row else {
            tracing::warn!(
                table = self.inner.table,
                "the log's ids come from no sequence of its own; they must go up and be taken inside the insert"
            );
            return Ok(());
        };
        let cache: i64 = row.try_get("cache").map_err(store_error)?;
        let increment: i64 = row.try_get("increment").map_err(store_error)?;
        if cache == 1 && increment > 0 {
            return Ok(());
        }
        Err(StoreError {
            kind: StoreErrorKind::Other,
            message: format!(
                "the sequence of {} has cache {cache} and increment {increment}, so ids are not given out in order and rows \
                 could be overlooked",
                self.inner.table
            ),
            remedy: Some("run `alter sequence … cache 1 increment 1`"),
            source: None,
        })
    }
}

/// Any error costs the seat: the connection, the lock and what was remembered go together.
fn leave_after_an_error<T>(seat: &mut Seat, outcome: sqlx::Result<T>) -> Result<T, StoreError> {
    if outcome.is_err() {
        *seat = Seat::Away;
    }
    outcome.map_err(store_error)
}

/// There is one cursor, so a relay that passed over other topics would lose them.
fn refuse_parts(scope: &Scope) -> Result<(), StoreError> {
    if scope.topics.is_empty() && scope.tenant.is_none() {
        return Ok(());
    }
    Err(StoreError {
        kind: StoreErrorKind::Other,
        message: "a log has one cursor, so a relay cannot serve a part of it".to_owned(),
        remedy: Some("leave out scope.topics and scope.tenant"),
        source: None,
    })
}
