//! The relay's verbs.

use std::collections::{HashMap, HashSet};
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
use sqlx::query::Query;
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::types::Json;
use sqlx::{Connection, Row, Sqlite, SqliteConnection};

use crate::error::store_error;
use crate::rows::{claimed, id, ids_by_sequence, millis};
use crate::statements::Statement;
use crate::wake::Watcher;
use crate::{BEGIN, SqliteStore};

#[async_trait]
impl RelayStore for SqliteStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        self.claim_if_any(request).await.map_err(store_error)
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<MessageId>, StoreError> {
        let mut verdicts = Vec::with_capacity(settlements.len());
        let mut failures = HashMap::new();
        for Settlement { id, token, verdict, .. } in settlements {
            let word = match verdict {
                Verdict::Delivered => "delivered",
                Verdict::Released => "released",
                Verdict::Retry { delay, error } => {
                    failures.insert(id, (printable(error), Some(millis(*delay))));
                    "retry"
                }
                Verdict::Postponed { delay, error } => {
                    failures.insert(id, (printable(error), Some(millis(*delay))));
                    "postponed"
                }
                Verdict::Dead { error } => {
                    failures.insert(id, (printable(error), None));
                    "dead"
                }
            };
            verdicts.push((id, token.as_uuid(), word));
        }
        let rows = sqlx::query(self.statements.settle.sql())
            .bind(Json(verdicts))
            .bind(Json(failures))
            .fetch_all(&self.pool)
            .await
            .map_err(store_error)?;
        let settled = id_set(&rows)?;
        let ids = settlements.iter().map(|settlement| settlement.id);
        Ok(ids.filter(|id| !settled.contains(id)).collect())
    }

    async fn extend(
        &self,
        token: LeaseToken,
        ids: &[MessageId],
        lease: Duration,
    ) -> Result<Vec<MessageId>, StoreError> {
        let rows = sqlx::query(self.statements.extend.sql())
            .bind(Json(ids))
            .bind(token.as_uuid().hyphenated())
            .bind(millis(lease))
            .fetch_all(&self.pool)
            .await
            .map_err(store_error)?;
        let held = id_set(&rows)?;
        Ok(ids.iter().copied().filter(|id| held.contains(id)).collect())
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
            .bind(namespace.to_owned())
            .fetch_one(&self.pool)
            .await
            .map_err(store_error)?;
        let number = |name: &str| {
            let value: i64 = row.try_get(name).map_err(store_error)?;
            Ok::<_, StoreError>(u64::try_from(value).unwrap_or(0))
        };
        Ok(OutboxStats {
            pending: number("pending")?,
            waiting: number("waiting")?,
            processing: number("processing")?,
            dead: number("dead")?,
            oldest_seconds: Duration::from_millis(number("oldest_ms")?).as_secs_f64(),
        })
    }

    async fn beat(&self, beat: &RelayBeat) -> Result<(), StoreError> {
        self.write_beat(beat).await.map_err(store_error)
    }

    async fn lead(&self, request: &LeadRequest) -> Result<Leadership, StoreError> {
        self.ask_to_lead(request).await.map_err(store_error)
    }

    async fn leave(&self, worker: WorkerId) -> Result<(), StoreError> {
        self.remove_relay(worker).await.map_err(store_error)
    }

    async fn wake_source(&self) -> Option<Box<dyn WakeSource>> {
        let options = self.pool.connect_options();
        // There is nothing to watch in a database that has no file.
        options
            .get_filename()
            .is_file()
            .then(|| Box::new(Watcher::new(&options)) as Box<dyn WakeSource>)
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.stats("").await.map(drop)
    }
}

/// What the probe found.
struct Work {
    /// Rows may be due; their keys may still hold them back.
    due: bool,
    /// The most attempts of a row that a vanished worker left behind.
    most_tried: Option<u32>,
    /// Rows have used all their attempts.
    exhausted: bool,
}

impl Work {
    fn is_none(&self) -> bool {
        !self.due && self.most_tried.is_none() && !self.exhausted
    }
}

impl SqliteStore {
    /// Asks for the write lock only if there is something to write.
    async fn claim_if_any(&self, request: &ClaimRequest) -> sqlx::Result<Claim> {
        let mut conn = self.pool.acquire().await?;
        if self.probe(&mut conn, request).await?.is_none() {
            return Ok(Claim::default());
        }
        let mut tx = conn.begin_with(BEGIN).await?;
        let claim = self.claim_on(&mut tx, request).await?;
        tx.commit().await?;
        Ok(claim)
    }

    /// Runs under the write lock, so claims are serialised whatever their order.
    async fn claim_on(&self, conn: &mut SqliteConnection, request: &ClaimRequest) -> sqlx::Result<Claim> {
        // Once more: somebody else may have taken what the first probe saw.
        let work = self.probe(conn, request).await?;
        let died = if work.exhausted {
            self.sweep_on(conn, &request.scope, request.max_attempts).await?
        } else {
            Vec::new()
        };
        let mut messages = Vec::new();
        if let Some(most_tried) = work.most_tried {
            let limit = reclaim_limit(most_tried, request.max_attempts, request.limit);
            let (ordered, dead_blocks, except) = policy(&request.ordering);
            let query = claim_query(&self.statements.reclaim, request, limit);
            let rows = query
                .bind(ordered)
                .bind(dead_blocks)
                .bind(Json(except))
                .fetch_all(&mut *conn)
                .await?;
            messages = claimed(rows)?;
        }
        // What vanished workers left may be held back by its keys; that must not hold up everybody else.
        let reclaimed = !messages.is_empty();
        if !reclaimed && work.due {
            messages = claimed(self.claim_pending(conn, request).await?)?;
        }
        Ok(Claim {
            messages,
            reclaimed,
            died,
        })
    }

    async fn probe(&self, conn: &mut SqliteConnection, request: &ClaimRequest) -> sqlx::Result<Work> {
        let row = sqlx::query(self.statements.probe.sql())
            .bind(&request.scope.namespace)
            .bind(i64::from(request.max_attempts))
            .bind(topics(&request.scope))
            .bind(&request.scope.tenant)
            .fetch_one(conn)
            .await?;
        let most_tried: Option<i64> = row.try_get("most_tried")?;
        Ok(Work {
            due: row.try_get("due")?,
            most_tried: most_tried.map(|attempts| u32::try_from(attempts).unwrap_or(0)),
            exhausted: row.try_get("exhausted")?,
        })
    }

    async fn claim_pending(&self, conn: &mut SqliteConnection, request: &ClaimRequest) -> sqlx::Result<Vec<SqliteRow>> {
        if request.ordering == Ordering::None {
            return claim_query(&self.statements.claim_any, request, request.limit)
                .fetch_all(conn)
                .await;
        }
        let (_, dead_blocks, except) = policy(&request.ordering);
        claim_query(&self.statements.claim_per_key, request, request.limit)
            .bind(dead_blocks)
            .bind(Json(except))
            .bind(request.look_ahead)
            .fetch_all(conn)
            .await
    }

    async fn sweep_on(
        &self,
        conn: &mut SqliteConnection,
        scope: &Scope,
        max_attempts: u32,
    ) -> sqlx::Result<Vec<MessageId>> {
        let rows = sqlx::query(self.statements.sweep.sql())
            .bind(&scope.namespace)
            .bind(i64::from(max_attempts))
            .bind(topics(scope))
            .bind(&scope.tenant)
            .bind(EXHAUSTED)
            .fetch_all(conn)
            .await?;
        ids_by_sequence(rows)
    }
}

fn claim_query<'q>(statement: &Statement, request: &'q ClaimRequest, limit: u32) -> Query<'q, Sqlite, SqliteArguments> {
    sqlx::query(statement.sql())
        .bind(&request.scope.namespace)
        .bind(i64::from(request.max_attempts))
        .bind(topics(&request.scope))
        .bind(&request.scope.tenant)
        .bind(i64::from(limit))
        .bind(i64::try_from(request.max_bytes).unwrap_or(i64::MAX))
        .bind(request.worker.as_uuid().hyphenated())
        .bind(request.token.as_uuid().hyphenated())
        .bind(millis(request.lease))
}

fn policy(ordering: &Ordering) -> (bool, bool, &[String]) {
    match ordering {
        Ordering::None => (false, false, &[]),
        Ordering::PerKey { dead_head, except } => (true, *dead_head == DeadHead::Block, except),
    }
}

fn topics(scope: &Scope) -> Option<Json<&[String]>> {
    (!scope.topics.is_empty()).then_some(Json(&scope.topics))
}

/// SQLite's text ends at a NUL.
fn printable(error: &str) -> String {
    error.replace('\0', " ")
}

fn id_set(rows: &[SqliteRow]) -> Result<HashSet<MessageId>, StoreError> {
    rows.iter().map(id).collect::<sqlx::Result<_>>().map_err(store_error)
}
