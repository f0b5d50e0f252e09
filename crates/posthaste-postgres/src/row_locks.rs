//! Claims on tables without leases: the transaction that locked the rows is kept while they are published.
//!
//! The lock is the lease. A relay that dies loses its connection, and the server frees the rows at once. One that lives
//! but does not renew in time has its transaction rolled back by a watchdog here; one that is frozen, by the server, which
//! ends sessions that sit idle in a transaction for longer than the lease.
//!
//! Each claim in flight has a connection of its own until it is settled, and renewals and verdicts run on that one: a
//! pool needs as many connections as claims may be in flight (`max_in_flight / batch_size`, rounded up), and one more if
//! statistics and operators are not to wait for a claim to end. With fewer nothing is stuck: claims wait their turn.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use posthaste_core::lifecycle::{LeaseToken, Settlement};
use posthaste_core::store::{Claim, ClaimRequest, RefusedVerdict, Settled, StoreErrorKind};
use posthaste_core::{MessageId, StoreError};
use posthaste_sql::table::{Role, Table};
use sqlx::postgres::PgRow;
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Executor, PgConnection, Postgres, Row, Transaction};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

use crate::PostgresStore;
use crate::claim::{ScanWindow, found, in_scope, max_bytes};
use crate::error::{by_sqlstate, store_error};
use crate::pooling;
use crate::rows::{claimed, ids, millis};
use crate::statements::{RowLocks as Statements, RowLocksInOrder};

/// How such a claim begins: no lock is waited for, and the statements are planned as for any claim.
const BEGIN: &str = "begin isolation level read committed;
    set local lock_timeout = '1s'; set local work_mem = '64MB'; set local jit = off";

/// The server's part of the watch over a relay that is frozen.
const LIMIT_IDLE: &str = "select set_config('idle_in_transaction_session_timeout', $1, true)";

/// Around verdicts, which the server may refuse without the claim being lost. Constraints that wait for the commit would
/// take the whole claim along.
const TRY: &str = "savepoint verdicts; set constraints all immediate";

/// The rows stay locked: they were before.
const UNDO: &str = "rollback to savepoint verdicts; release savepoint verdicts";

/// A lock that was held for so long is not waited for again with each half.
const WAIT_LESS: &str = "set local lock_timeout = '100ms'";

/// What became of the verdicts of one claim; the rest is lost.
#[derive(Default)]
struct Written {
    settled: HashSet<MessageId>,
    refused: Vec<RefusedVerdict>,
}

/// The transactions of claims in flight.
#[derive(Debug, Default)]
pub(crate) struct RowLocks(Mutex<HashMap<LeaseToken, Arc<Held>>>);

/// The transaction of one claim.
#[derive(Debug)]
struct Held {
    tx: tokio::sync::Mutex<Option<Transaction<'static, Postgres>>>,
    until: Mutex<Instant>,
    watchdog: Mutex<Option<AbortHandle>>,
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(watchdog) = lock(&self.watchdog).take() {
            watchdog.abort();
        }
    }
}

/// No code panics while holding one of these locks, and the data would be sound if it did.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RowLocks {
    fn keep(self: &Arc<Self>, token: LeaseToken, tx: Transaction<'static, Postgres>, until: Instant) {
        let held = Arc::new(Held {
            tx: tokio::sync::Mutex::new(Some(tx)),
            until: Mutex::new(until),
            watchdog: Mutex::new(None),
        });
        let watchdog = tokio::spawn(watch(Arc::downgrade(self), token, Arc::downgrade(&held)));
        *lock(&held.watchdog) = Some(watchdog.abort_handle());
        lock(&self.0).insert(token, held);
    }

    fn find(&self, token: LeaseToken) -> Option<Arc<Held>> {
        lock(&self.0).get(&token).cloned()
    }

    fn take(&self, token: LeaseToken) -> Option<Arc<Held>> {
        lock(&self.0).remove(&token)
    }
}

/// Rolls a claim back that was not renewed in time.
async fn watch(claims: Weak<RowLocks>, token: LeaseToken, held: Weak<Held>) {
    loop {
        let Some(until) = held.upgrade().map(|held| *lock(&held.until)) else {
            return;
        };
        sleep_until(until).await;
        let (Some(claims), Some(held)) = (claims.upgrade(), held.upgrade()) else {
            return;
        };
        // A renewal that is under way holds this; the first one to come decides.
        let mut tx = held.tx.lock().await;
        if *lock(&held.until) > Instant::now() {
            continue;
        }
        // Out of reach of the abort that comes with the claim's end.
        lock(&held.watchdog).take();
        claims.take(token);
        tracing::warn!("a claim was not renewed in time; its rows are free again");
        if let Some(tx) = tx.take()
            && let Err(error) = tx.rollback().await
        {
            tracing::debug!(%error, "the rollback of a claim failed; the server ends it with the connection");
        }
        return;
    }
}

impl PostgresStore {
    pub(crate) async fn claim_by_locks(&self, request: &ClaimRequest) -> sqlx::Result<Claim> {
        let Some(any) = &self.statements.row_locks else {
            return Ok(Claim::default());
        };
        let in_order = self.statements.row_locks_in_order.as_ref();
        let mut tx = pooling::begin(&self.pool, BEGIN).await?;
        if let Some(hold_table) = self.hold_table() {
            tx.execute(AssertSqlSafe(hold_table)).await?;
        }
        // Counted from before the rows are locked, as the engine does.
        let until = Instant::now() + request.lease;
        sqlx::query(LIMIT_IDLE)
            .persistent(self.sessions.keep_statements())
            .bind(format!("{}ms", millis(request.lease).clamp(1, i64::from(i32::MAX))))
            .execute(&mut *tx)
            .await?;
        let rows = match in_order.filter(|_| self.is_ordered(request)) {
            Some(in_order) => self.lock_in_order(&mut tx, in_order, request).await?,
            None => lock_any(&mut tx, any, request).await?,
        };
        let messages = claimed(&rows, &self.map)?;
        if messages.is_empty() {
            tx.rollback().await?;
        } else {
            self.row_locks.keep(request.token, tx, until);
        }
        Ok(Claim {
            messages,
            ..Claim::default()
        })
    }

    /// Asks for the table as the verdicts will: locks on rows alone would let another transaction lock it as a whole,
    /// which then keeps the verdicts out. To plan is enough; an update of nothing would fire triggers, and `lock table`
    /// wants rights to all columns.
    fn hold_table(&self) -> Option<String> {
        let table = self.map.table(Table::Outbox)?.quoted('"');
        let status = self.map.column(Role::Status)?.name.quoted('"');
        Some(format!("explain update {table} set {status} = {status} where false"))
    }

    async fn lock_in_order(
        &self,
        conn: &mut PgConnection,
        statements: &RowLocksInOrder,
        request: &ClaimRequest,
    ) -> sqlx::Result<Vec<PgRow>> {
        let arguments = self.claim_lock_arguments(request).into_iter();
        let ours = arguments.fold(statements.try_lock_claims.query(), Query::bind);
        if !ours.fetch_one(&mut *conn).await?.try_get::<bool, _>("locked")? {
            // Another claim in order is in flight; its keys cannot be told from others.
            return Ok(Vec::new());
        }
        let mut window = ScanWindow::first(request);
        loop {
            let query = in_scope(&statements.lock_in_order, &request.scope, request.max_attempts)
                .bind(i64::from(request.limit))
                .bind(max_bytes(request));
            let rows = window.bind(query, &request.ordering).fetch_all(&mut *conn).await?;
            let rows = found(rows, &mut window)?;
            if !rows.is_empty() || window.saw_everything() {
                return Ok(rows);
            }
        }
    }

    /// Writes all verdicts of each claim in its own transaction and commits it.
    pub(crate) async fn settle_by_locks(&self, settlements: &[Settlement]) -> Settled {
        let mut claims: Vec<(LeaseToken, Vec<&Settlement>)> = Vec::new();
        for settlement in settlements {
            match claims.iter_mut().find(|(token, _)| *token == settlement.token) {
                Some((_, settlements)) => settlements.push(settlement),
                None => claims.push((settlement.token, vec![settlement])),
            }
        }
        let mut all = Settled::default();
        for (token, settlements) in claims {
            let written = match self.row_locks.take(token) {
                Some(held) => self.settle_claim(&held, &settlements).await,
                None => Ok(Written::default()),
            };
            let written = written.unwrap_or_else(|error| {
                // Whether it was committed is not known. If not, the rows are free and are published again.
                tracing::warn!(%error, "the verdicts of a claim could not be written; its locks are lost");
                Written::default()
            });
            let refused: HashSet<_> = written.refused.iter().map(|refused| refused.id).collect();
            let ids = settlements.iter().map(|settlement| settlement.id);
            all.lost
                .extend(ids.filter(|id| !written.settled.contains(id) && !refused.contains(id)));
            all.refused.extend(written.refused);
        }
        all
    }

    /// Where the database refuses verdicts, it is asked for half of them, until the culprit is alone: the rest of the
    /// claim was published as well, and must not be published again because of it.
    async fn settle_claim(&self, held: &Held, settlements: &[&Settlement]) -> sqlx::Result<Written> {
        let Some(mut tx) = held.tx.lock().await.take() else {
            return Ok(Written::default());
        };
        let mut written = Written::default();
        let mut parts = vec![settlements];
        while let Some(part) = parts.pop() {
            tx.execute(TRY).await?;
            match self.settling(part.iter().copied()).fetch_all(&mut *tx).await {
                Ok(rows) => {
                    written.settled.extend(ids(&rows, &self.map)?);
                    if !parts.is_empty() {
                        tx.execute("release savepoint verdicts").await?;
                    }
                }
                Err(error) => {
                    let error = about_rows(error)?;
                    tx.execute(UNDO).await?;
                    match part {
                        // A trigger asked for another transaction's lock: the next time it may be free.
                        [_] if error.kind == StoreErrorKind::Contention => {}
                        [settlement] => written.refused.push(RefusedVerdict {
                            id: settlement.id,
                            error,
                        }),
                        several => {
                            if error.kind == StoreErrorKind::Contention {
                                tx.execute(WAIT_LESS).await?;
                            }
                            let (first, second) = several.split_at(several.len() / 2);
                            parts.extend([second, first]);
                        }
                    }
                }
            }
        }
        tx.commit().await?;
        Ok(written)
    }

    /// Shows the server that the claim is alive; its rows are held as long as it is.
    pub(crate) async fn extend_by_locks(
        &self,
        token: LeaseToken,
        ids: &[MessageId],
        lease: Duration,
    ) -> Vec<MessageId> {
        let Some(held) = self.row_locks.find(token) else {
            return Vec::new();
        };
        let mut place = held.tx.lock().await;
        let Some(tx) = place.as_mut() else { return Vec::new() };
        let until = Instant::now() + lease;
        if let Err(error) = tx.execute("select").await {
            tracing::warn!(%error, "a claim could not be renewed; its locks are lost");
            place.take();
            self.row_locks.take(token);
            return Vec::new();
        }
        *lock(&held.until) = until;
        ids.to_vec()
    }
}

/// What the database has against a verdict. What went with the connection says nothing about a row.
fn about_rows(error: sqlx::Error) -> sqlx::Result<StoreError> {
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
    match code.map(|code| by_sqlstate(&code).0) {
        Some(kind) if !kind.is_transient() || kind == StoreErrorKind::Contention => Ok(store_error(error)),
        _ => Err(error),
    }
}

async fn lock_any(
    conn: &mut PgConnection,
    statements: &Statements,
    request: &ClaimRequest,
) -> sqlx::Result<Vec<PgRow>> {
    in_scope(&statements.lock_unordered, &request.scope, request.max_attempts)
        .bind(i64::from(request.limit))
        .bind(max_bytes(request))
        .fetch_all(conn)
        .await
}
