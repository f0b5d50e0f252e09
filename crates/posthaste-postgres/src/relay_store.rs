//! The relay's verbs.

use std::time::Duration;

use async_trait::async_trait;
use posthaste_core::isolation::reclaim_limit;
use posthaste_core::lifecycle::{EXHAUSTED, LeaseToken, Settlement, Verdict};
use posthaste_core::store::{
    Claim, ClaimRequest, DeadHead, LeadRequest, Leadership, Ordering, OutboxStats, RelayBeat, RelayStore, Scope,
    WorkerId,
};
use posthaste_core::wake::WakeSource;
use posthaste_core::{MessageId, StoreError};
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{PgConnection, Postgres, Row};

use crate::PostgresStore;
use crate::doorbell::Listener;
use crate::error::store_error;
use crate::rows::{claimed, id, millis};
use crate::statements::Statement;

#[async_trait]
impl RelayStore for PostgresStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        self.claim_in_transaction(request).await.map_err(store_error)
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<MessageId>, StoreError> {
        let verdict = |settlement: &Settlement| match &settlement.verdict {
            Verdict::Delivered => ("delivered", 0, None),
            Verdict::Retry { delay, error } => ("retry", millis(*delay), Some(error.replace('\0', " "))),
            Verdict::Postponed { delay, error } => ("postponed", millis(*delay), Some(error.replace('\0', " "))),
            Verdict::Dead { error } => ("dead", 0, Some(error.replace('\0', " "))),
            Verdict::Released => ("released", 0, None),
        };
        // Renewals and verdicts of one relay touch the same rows at the same time: they take them in the same order.
        let mut settlements: Vec<_> = settlements.iter().collect();
        settlements.sort_unstable_by_key(|settlement| settlement.id);
        let (mut verdicts, mut delays, mut errors) = (Vec::new(), Vec::new(), Vec::new());
        for (word, delay, error) in settlements.iter().copied().map(verdict) {
            verdicts.push(word);
            delays.push(delay);
            errors.push(error);
        }
        let rows = sqlx::query(self.statements.settle.sql())
            .bind(settlements.iter().map(|s| s.id.uuid()).collect::<Vec<_>>())
            .bind(settlements.iter().map(|s| s.token.as_uuid()).collect::<Vec<_>>())
            .bind(verdicts)
            .bind(delays)
            .bind(errors)
            .fetch_all(&self.pool)
            .await
            .map_err(store_error)?;
        let settled: std::collections::HashSet<_> = ids(&rows)?.into_iter().collect();
        Ok(settlements
            .iter()
            .map(|s| s.id)
            .filter(|id| !settled.contains(id))
            .collect())
    }

    async fn extend(
        &self,
        token: LeaseToken,
        held: &[MessageId],
        lease: Duration,
    ) -> Result<Vec<MessageId>, StoreError> {
        let mut held: Vec<_> = held.iter().filter_map(|id| id.uuid()).collect();
        held.sort_unstable();
        let rows = sqlx::query(self.statements.extend.sql())
            .bind(held)
            .bind(token.as_uuid())
            .bind(millis(lease))
            .fetch_all(&self.pool)
            .await
            .map_err(store_error)?;
        ids(&rows)
    }

    async fn sweep(&self, scope: &Scope, max_attempts: u32) -> Result<Vec<MessageId>, StoreError> {
        let mut conn = self.pool.acquire().await.map_err(store_error)?;
        self.sweep_on(&mut conn, scope, max_attempts).await.map_err(store_error)
    }

    async fn purge(&self, keep: Duration, limit: u32) -> Result<u64, StoreError> {
        let delivered = sqlx::query(self.statements.purge_delivered.sql())
            .bind(millis(keep))
            .bind(i64::from(limit))
            .execute(&self.pool)
            .await
            .map_err(store_error)?;
        let keys = sqlx::query(self.statements.purge_dedupe.sql())
            .bind(i64::from(limit))
            .execute(&self.pool)
            .await
            .map_err(store_error)?;
        Ok(delivered.rows_affected() + keys.rows_affected())
    }

    async fn stats(&self, namespace: &str) -> Result<OutboxStats, StoreError> {
        let row = sqlx::query(self.statements.stats.sql())
            .bind(namespace)
            .fetch_one(&self.pool)
            .await
            .map_err(store_error)?;
        let count = |name: &str| row.try_get::<i64, _>(name).map(i64::cast_unsigned).map_err(store_error);
        Ok(OutboxStats {
            pending: count("pending")?,
            waiting: count("waiting")?,
            processing: count("processing")?,
            dead: count("dead")?,
            oldest_seconds: row.try_get::<f64, _>("oldest_seconds").map_err(store_error)?.max(0.0),
        })
    }

    async fn beat(&self, beat: &RelayBeat) -> Result<(), StoreError> {
        self.write_beat(beat).await.map_err(store_error)
    }

    async fn lead(&self, request: &LeadRequest) -> Result<Leadership, StoreError> {
        self.ask_to_lead(request).await.map_err(store_error)
    }

    async fn leave(&self, worker: WorkerId) -> Result<(), StoreError> {
        let leaving = sqlx::query(self.statements.leave.sql()).bind(worker.as_uuid());
        leaving.execute(&self.pool).await.map(drop).map_err(store_error)
    }

    async fn wake_source(&self) -> Option<Box<dyn WakeSource>> {
        Some(Box::new(Listener::new(self)))
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.stats("").await.map(drop)
    }
}

/// How a claim begins. A relay that is frozen in the middle of a claim must not hold the claim lock for ever, nor may the
/// others wait for it without a word. The sets of blocked keys need room, or they are searched row by row; and
/// just-in-time compilation, chosen for the statement's unlucky estimates, would cost more than the claim.
const BEGIN_CLAIM: &str = "begin;
    set local lock_timeout = '5s'; set local idle_in_transaction_session_timeout = '5s';
    set local work_mem = '64MB'; set local jit = off";

/// What the probe found: work of vanished workers.
struct Expired {
    most_tried: Option<u32>,
    exhausted: bool,
}

impl PostgresStore {
    async fn claim_in_transaction(&self, request: &ClaimRequest) -> sqlx::Result<Claim> {
        let mut tx = self.pool.begin_with(BEGIN_CLAIM).await?;
        if matches!(request.ordering, Ordering::PerKey { .. }) {
            let lock = format!("{}:{}", self.channel(), request.scope.namespace);
            sqlx::query(self.statements.lock_claims.sql())
                .bind(lock)
                .execute(&mut *tx)
                .await?;
        }
        let expired = self.probe_expired(&mut tx, request).await?;
        let died = if expired.exhausted {
            self.sweep_on(&mut tx, &request.scope, request.max_attempts).await?
        } else {
            Vec::new()
        };
        let mut messages = Vec::new();
        if let Some(most_tried) = expired.most_tried {
            let limit = reclaim_limit(most_tried, request.max_attempts, request.limit);
            let (ordered, dead_blocks, except) = policy(&request.ordering);
            let query = claim_query(&self.statements.reclaim, request, limit);
            messages = claimed(
                query
                    .bind(ordered)
                    .bind(dead_blocks)
                    .bind(except)
                    .fetch_all(&mut *tx)
                    .await?,
            )?;
        }
        // What vanished workers left may be held back by its keys; that must not hold up everybody else.
        let reclaimed = !messages.is_empty();
        if !reclaimed {
            messages = claimed(self.claim_pending(&mut tx, request).await?)?;
        }
        tx.commit().await?;
        Ok(Claim {
            messages,
            reclaimed,
            died,
        })
    }

    async fn probe_expired(&self, conn: &mut PgConnection, request: &ClaimRequest) -> sqlx::Result<Expired> {
        let row = sqlx::query(self.statements.probe_expired.sql())
            .bind(&request.scope.namespace)
            .bind(attempt_limit(request.max_attempts))
            .bind(topics(&request.scope))
            .bind(&request.scope.tenant)
            .fetch_one(conn)
            .await?;
        let most_tried: Option<i32> = row.try_get("most_tried")?;
        Ok(Expired {
            most_tried: most_tried.map(|attempts| u32::try_from(attempts).unwrap_or(0)),
            exhausted: row.try_get::<i64, _>("exhausted")? > 0,
        })
    }

    async fn claim_pending(&self, conn: &mut PgConnection, request: &ClaimRequest) -> sqlx::Result<Vec<PgRow>> {
        if request.ordering == Ordering::None {
            return claim_query(&self.statements.claim_any, request, request.limit)
                .fetch_all(conn)
                .await;
        }
        let (_, dead_blocks, except) = policy(&request.ordering);
        let any_blocks = dead_blocks || !except.is_empty();
        claim_query(&self.statements.claim_per_key, request, request.limit)
            .bind(dead_blocks)
            .bind(except)
            .bind(any_blocks)
            .bind(request.look_ahead.map(i64::from))
            .fetch_all(conn)
            .await
    }

    async fn sweep_on(
        &self,
        conn: &mut PgConnection,
        scope: &Scope,
        max_attempts: u32,
    ) -> sqlx::Result<Vec<MessageId>> {
        let rows = sqlx::query(self.statements.sweep.sql())
            .bind(&scope.namespace)
            .bind(attempt_limit(max_attempts))
            .bind(topics(scope))
            .bind(&scope.tenant)
            .bind(EXHAUSTED)
            .fetch_all(conn)
            .await?;
        rows.iter().map(id).collect()
    }
}

fn claim_query<'q>(statement: &Statement, request: &'q ClaimRequest, limit: u32) -> Query<'q, Postgres, PgArguments> {
    sqlx::query(statement.sql())
        .bind(&request.scope.namespace)
        .bind(attempt_limit(request.max_attempts))
        .bind(topics(&request.scope))
        .bind(&request.scope.tenant)
        .bind(i64::from(limit))
        .bind(i64::try_from(request.max_bytes).unwrap_or(i64::MAX))
        .bind(request.worker.as_uuid())
        .bind(request.token.as_uuid())
        .bind(millis(request.lease))
}

fn policy(ordering: &Ordering) -> (bool, bool, &[String]) {
    match ordering {
        Ordering::None => (false, false, &[]),
        Ordering::PerKey { dead_head, except } => (true, *dead_head == DeadHead::Block, except),
    }
}

fn topics(scope: &Scope) -> Option<&[String]> {
    (!scope.topics.is_empty()).then_some(scope.topics.as_slice())
}

fn attempt_limit(max_attempts: u32) -> i32 {
    i32::try_from(max_attempts).unwrap_or(i32::MAX)
}

fn ids(rows: &[PgRow]) -> Result<Vec<MessageId>, StoreError> {
    rows.iter().map(id).collect::<sqlx::Result<_>>().map_err(store_error)
}
