//! Handing out rows under a lease.

use posthaste_core::MessageId;
use posthaste_core::reclaim::reclaim_limit;
use posthaste_core::store::{Claim, ClaimRequest, ClaimedMessage, DeadHead, KeyOrdering, Scope};
use posthaste_sql::RowChange;
use posthaste_sql::table::{Role, Table};
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Connection, PgConnection, Postgres, Row};

use crate::PostgresStore;
use crate::pooling;
use crate::rows::{claimed, claimed_by_sequence, ids, millis};
use crate::statements::{LeasedInOrder, Split, Statement};
use crate::table_locks::LOCK_TIMEOUT;
use crate::taking::{Taking, is_refusal};

/// How long a claim waits for its turn.
const CLAIM_LOCK_TIMEOUT: &str = "5s";

/// How a claim begins. A relay that is frozen in the middle of a claim must not hold the claim lock forever, nor may the
/// others wait for it without a word. The sets of blocked keys need room, or they are searched row by row; and
/// just-in-time compilation, chosen for the statement's unlucky estimates, would cost more than the claim. What the server
/// takes for an isolation level is not asked.
const BEGIN_CLAIM: &str = "begin isolation level read committed; set local idle_in_transaction_session_timeout = '5s';
    set local work_mem = '64MB'; set local jit = off";

/// For Posthaste's own tables, whose claim is dear to plan: once, for any arguments. A relay often plans it when the table is
/// empty, and a plan for an empty table reads all of it, once for each lane, when rows come to wait there. Every part of the
/// claim has an index.
const PLAN_ONCE: &str = "set local plan_cache_mode = force_generic_plan; set local enable_seqscan = off";

/// Pending rows in the first window of an ordered claim, without a scan limit.
const FIRST_WINDOW: u32 = 1_000;

/// How many lanes are gone through one by one.
const MAX_LANES: u32 = 2_000;

/// How many of them while there is a backlog and scans are to be cheap.
const FEW_LANES: u32 = 200;

/// What the probe found: work of crashed workers.
#[derive(Default)]
struct Expired {
    most_tried: Option<u32>,
    exhausted: bool,
}

impl PostgresStore {
    pub(crate) async fn claim_under_lease(&self, request: &ClaimRequest) -> sqlx::Result<Claim> {
        match self.claim_once(request, Taking::on_trust(request, &self.map)).await {
            // The transaction is over with the first statement that is refused, so all is done again.
            Err(error) if is_refusal(&error) => self.claim_once(request, Taking::with_care(request, &self.map)).await,
            claim => claim,
        }
    }

    async fn claim_once(&self, request: &ClaimRequest, taking: Taking<'_>) -> sqlx::Result<Claim> {
        // The claim lock has the statement that takes it say how long the table itself is waited for.
        let lock_timeout = if self.is_ordered(request) {
            CLAIM_LOCK_TIMEOUT
        } else {
            LOCK_TIMEOUT
        };
        let mut begin = format!("{BEGIN_CLAIM}; set local lock_timeout = '{lock_timeout}'");
        if self.statements.split.is_some() {
            begin = format!("{begin}; {PLAN_ONCE}");
        }
        // Words of this file alone.
        let mut tx = pooling::begin(&self.pool, AssertSqlSafe(begin)).await?;
        let claim = self.claim_on(&mut tx, request, taking).await;
        match &claim {
            Ok(_) => tx.commit().await?,
            // Its locks must be gone before the rows are looked for again.
            Err(error) if is_refusal(error) => tx.rollback().await?,
            Err(_) => {}
        }
        claim
    }

    /// Claims in a transaction that the caller commits.
    async fn claim_on(
        &self,
        conn: &mut PgConnection,
        request: &ClaimRequest,
        mut taking: Taking<'_>,
    ) -> sqlx::Result<Claim> {
        taking.begin(conn).await?;
        if let (Some(leases), true) = (&self.statements.leases, self.is_ordered(request)) {
            self.claim_lock(&leases.lock_claims, request)
                .execute(&mut *conn)
                .await?;
        }
        let expired = self.probe_expired(conn, request).await?;
        let died = if expired.exhausted {
            self.sweep_apart(conn, request).await?
        } else {
            Vec::new()
        };
        let mut messages = Vec::new();
        if let Some(most_tried) = expired.most_tried {
            let limit = reclaim_limit(most_tried, request.max_attempts, request.limit);
            messages = self.reclaim(conn, &mut taking, request, limit).await?;
        }
        // What crashed workers left may be held back by its keys; that must not hold up all others.
        let reclaimed = !messages.is_empty();
        if !reclaimed {
            messages = self.claim_pending(conn, &mut taking, request).await?;
        }
        Ok(Claim {
            messages,
            reclaimed,
            died,
            refused: taking.refused,
        })
    }

    async fn probe_expired(&self, conn: &mut PgConnection, request: &ClaimRequest) -> sqlx::Result<Expired> {
        let Some(until) = &self.statements.until else {
            return Ok(Expired::default());
        };
        let row = in_scope(&until.probe_expired, &request.scope, request.max_attempts)
            .fetch_one(conn)
            .await?;
        let most_tried: Option<i64> = row.try_get("most_tried")?;
        Ok(Expired {
            most_tried: most_tried.map(|attempts| u32::try_from(attempts).unwrap_or(0)),
            exhausted: row.try_get::<i64, _>("exhausted")? > 0,
        })
    }

    async fn reclaim(
        &self,
        conn: &mut PgConnection,
        taking: &mut Taking<'_>,
        request: &ClaimRequest,
        limit: u32,
    ) -> sqlx::Result<Vec<ClaimedMessage>> {
        let Some(split) = &self.statements.split else {
            return self.take(conn, taking, request, limit, true).await;
        };
        let (ordered, dead_blocks, except) = policy(&request.ordering);
        let reclaim = |statement: &Statement, left_out: Vec<String>| {
            let query = self.split_query(statement, request, limit);
            query.bind(ordered).bind(dead_blocks).bind(except).bind(left_out)
        };
        let rows = taking.rows(self, conn, &split.reclaim, reclaim).await?;
        claimed_by_sequence(rows, &self.map)
    }

    async fn claim_pending(
        &self,
        conn: &mut PgConnection,
        taking: &mut Taking<'_>,
        request: &ClaimRequest,
    ) -> sqlx::Result<Vec<ClaimedMessage>> {
        match &self.statements.split {
            Some(split) => self.claim_split(conn, taking, split, request).await,
            None => self.take(conn, taking, request, request.limit, false).await,
        }
    }

    async fn claim_split(
        &self,
        conn: &mut PgConnection,
        taking: &mut Taking<'_>,
        split: &Split,
        request: &ClaimRequest,
    ) -> sqlx::Result<Vec<ClaimedMessage>> {
        let rows = if request.ordering == KeyOrdering::None {
            let claim = |statement: &Statement, left_out: Vec<String>| {
                self.split_query(statement, request, request.limit).bind(left_out)
            };
            taking.rows(self, conn, &split.claim_any, claim).await?
        } else {
            self.claim_lanes(conn, taking, split, request).await?
        };
        claimed_by_sequence(rows, &self.map)
    }

    /// Scans further as long as lanes that are held back leave something to be wanted. What a scan has claimed is in
    /// flight for the next one, so that the order within a key stays.
    async fn claim_lanes(
        &self,
        conn: &mut PgConnection,
        taking: &mut Taking<'_>,
        split: &Split,
        request: &ClaimRequest,
    ) -> sqlx::Result<Vec<PgRow>> {
        let (_, dead_blocks, except) = policy(&request.ordering);
        let any_blocks = dead_blocks || !except.is_empty();
        let mut taken: Vec<PgRow> = Vec::new();
        let (mut wanted, mut bytes) = (request.limit, 0_i64);
        for scan in scans(request) {
            let most = match scan {
                LaneScan::Rows(most) | LaneScan::Lanes(most) => i64::from(most),
                LaneScan::Everything => i64::MAX,
            };
            let claim = |statement: &Statement, left_out: Vec<String>| {
                self.split_query(statement, request, wanted)
                    .bind(dead_blocks)
                    .bind(except)
                    .bind(any_blocks)
                    .bind(most)
                    .bind(matches!(scan, LaneScan::Lanes(_)))
                    .bind(bytes)
                    .bind(scan == LaneScan::Everything)
                    .bind(left_out)
            };
            let mut rows = taking.rows(self, conn, &split.claim_per_key, claim).await?;
            let looked_at: i64 = rows.first().map_or(Ok(0), |row| row.try_get("looked_at"))?;
            let is_full: bool = rows.first().map_or(Ok(false), |row| row.try_get("is_full"))?;
            rows.retain(is_row);
            for row in &rows {
                let payload: Option<&[u8]> = row.try_get("payload")?;
                bytes = bytes.saturating_add(i64::try_from(payload.unwrap_or_default().len()).unwrap_or(i64::MAX));
            }
            wanted = wanted.saturating_sub(u32::try_from(rows.len()).unwrap_or(u32::MAX));
            taken.extend(rows);
            if wanted == 0 || is_full || looked_at < most || bytes >= max_bytes(request) {
                break;
            }
        }
        Ok(taken)
    }

    /// Takes rows in the table's order: those of crashed workers, or else pending ones.
    async fn take(
        &self,
        conn: &mut PgConnection,
        taking: &mut Taking<'_>,
        request: &ClaimRequest,
        limit: u32,
        expired: bool,
    ) -> sqlx::Result<Vec<ClaimedMessage>> {
        // Tables without leases are claimed by locks.
        let Some(any) = &self.statements.leased else {
            return Ok(Vec::new());
        };
        let leased = |statement: &Statement| {
            in_scope(statement, &request.scope, request.max_attempts)
                .bind(i64::from(limit))
                .bind(max_bytes(request))
                .bind(self.map.fence(request.worker, request.token))
                .bind(millis(request.lease))
                .bind(expired)
        };
        let worker = self
            .map
            .has(Role::LockedBy)
            .then(|| request.worker.as_uuid().to_string());
        let in_order = self.statements.leased_in_order.as_ref();
        let in_order = in_order.filter(|_| self.is_ordered(request));
        let Some(LeasedInOrder { claim_in_order }) = in_order else {
            let claim = |statement: &Statement, left_out: Vec<String>| {
                by_worker(leased(statement).bind(left_out), worker.clone())
            };
            let rows = taking.rows(self, conn, &any.claim_unordered, claim).await?;
            return claimed(&rows, &self.map);
        };
        let mut window = ScanWindow::first(request);
        loop {
            let claim = |statement: &Statement, left_out: Vec<String>| {
                let query = window.bind(leased(statement), &request.ordering).bind(left_out);
                by_worker(query, worker.clone())
            };
            let rows = taking.rows(self, conn, claim_in_order, claim).await?;
            let rows = found(rows, &mut window)?;
            if !rows.is_empty() || window.saw_everything() {
                return claimed(&rows, &self.map);
            }
        }
    }

    fn split_query<'q>(
        &self,
        statement: &Statement,
        request: &'q ClaimRequest,
        limit: u32,
    ) -> Query<'q, Postgres, PgArguments> {
        in_scope(statement, &request.scope, request.max_attempts)
            .bind(i64::from(limit))
            .bind(max_bytes(request))
            .bind(request.worker.as_uuid().to_string())
            .bind(self.map.fence(request.worker, request.token))
            .bind(millis(request.lease))
    }

    /// A death that the table refuses must not keep all others from being claimed. The janitor sweeps too, and says why.
    async fn sweep_apart(&self, conn: &mut PgConnection, request: &ClaimRequest) -> sqlx::Result<Vec<MessageId>> {
        let mut apart = conn.begin().await?;
        match self.sweep_on(&mut apart, &request.scope, request.max_attempts).await {
            Ok(died) => {
                apart.commit().await?;
                Ok(died)
            }
            Err(error @ sqlx::Error::Database(_)) => {
                apart.rollback().await?;
                tracing::debug!(%error, "rows whose attempts are used up could not be swept");
                Ok(Vec::new())
            }
            Err(error) => Err(error),
        }
    }

    pub(crate) async fn sweep_on(
        &self,
        conn: &mut PgConnection,
        scope: &Scope,
        max_attempts: u32,
    ) -> sqlx::Result<Vec<MessageId>> {
        let Some(attempts) = &self.statements.attempts else {
            return Ok(Vec::new());
        };
        let exhausted = RowChange::exhausted(&self.map);
        let rows = in_scope(&attempts.sweep, scope, max_attempts)
            .bind(exhausted.error)
            .bind(exhausted.attempts)
            .fetch_all(conn)
            .await?;
        ids(&rows, &self.map)
    }

    /// Whether the claim asks for an order that the table can give.
    pub(crate) fn is_ordered(&self, request: &ClaimRequest) -> bool {
        request.ordering != KeyOrdering::None && self.map.has(Role::OrderingKey)
    }

    /// The statement that takes the claim lock, with its arguments.
    pub(crate) fn claim_lock<'q>(
        &self,
        statement: &Statement,
        request: &'q ClaimRequest,
    ) -> Query<'q, Postgres, PgArguments> {
        let namespace = &request.scope.namespace;
        match self.map.table(Table::Outbox) {
            Some(table) if !self.map.is_native() => {
                // Relays of a table without namespaces share all of it, whatever they are called.
                let namespace = if self.map.has(Role::Namespace) { namespace } else { "" };
                statement.query().bind(namespace).bind(table.quoted('"'))
            }
            _ => statement.query().bind(format!("{}:{namespace}", self.channel())),
        }
    }
}

/// What one scan of an ordered claim in Posthaste's own tables sees at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LaneScan {
    /// The first fresh rows in sequence, and the first due ones.
    Rows(u32),
    /// Lanes, one after the other.
    Lanes(u32),
    /// All rows, once.
    Everything,
}

/// First what is mostly enough, where most lanes are free. A deep backlog of rows that cannot be claimed mostly has few
/// lanes, of which each is asked for its first row; where it has many, so many must be held back that the rows themselves
/// are gone through, as far as the scan limit allows.
fn scans(request: &ClaimRequest) -> impl Iterator<Item = LaneScan> + use<> {
    let near = request.limit.saturating_mul(2).max(1);
    let limit = request.scan_limit.map(|limit| limit.max(1));
    let first = limit.map_or(near, |limit| near.min(limit));
    let further = match limit {
        Some(limit) if limit > first => vec![LaneScan::Lanes(FEW_LANES), LaneScan::Rows(limit)],
        Some(_) => Vec::new(),
        None => vec![LaneScan::Lanes(MAX_LANES), LaneScan::Everything],
    };
    std::iter::once(LaneScan::Rows(first)).chain(further)
}

/// How far an ordered claim scans. All earlier rows of the keys it sees are among what it sees, so a part is enough; if
/// nothing in it is free, the next part is larger.
pub(crate) struct ScanWindow {
    most: i64,
    seen: i64,
}

impl ScanWindow {
    pub(crate) fn first(request: &ClaimRequest) -> Self {
        let most = request.scan_limit.unwrap_or(FIRST_WINDOW).max(request.limit);
        Self {
            most: i64::from(most).max(1),
            seen: 0,
        }
    }

    pub(crate) fn bind<'q>(
        &self,
        query: Query<'q, Postgres, PgArguments>,
        ordering: &'q KeyOrdering,
    ) -> Query<'q, Postgres, PgArguments> {
        let (_, dead_blocks, except) = policy(ordering);
        let any_blocks = dead_blocks || !except.is_empty();
        query.bind(self.most).bind(any_blocks).bind(dead_blocks).bind(except)
    }

    /// Whether there is nothing beyond; otherwise the next window is larger.
    pub(crate) fn saw_everything(&mut self) -> bool {
        if self.seen < self.most {
            return true;
        }
        self.most = self.most.saturating_mul(4);
        false
    }
}

/// The rows that were taken, and how many there were to be looked at.
pub(crate) fn found(mut rows: Vec<PgRow>, window: &mut ScanWindow) -> sqlx::Result<Vec<PgRow>> {
    if let Some(row) = rows.first() {
        window.seen = row.try_get("looked_at")?;
    }
    rows.retain(is_row);
    Ok(rows)
}

/// Whether a row was taken, and does not only say how many there were.
fn is_row(row: &PgRow) -> bool {
    matches!(row.try_get::<Option<&str>, _>("id"), Ok(Some(_)))
}

/// Says who has the rows, where the table does.
fn by_worker(query: Query<'_, Postgres, PgArguments>, worker: Option<String>) -> Query<'_, Postgres, PgArguments> {
    match worker {
        Some(worker) => query.bind(worker),
        None => query,
    }
}

/// A statement that begins with namespace, limit of attempts, topics and tenant.
pub(crate) fn in_scope<'q>(
    statement: &Statement,
    scope: &'q Scope,
    max_attempts: u32,
) -> Query<'q, Postgres, PgArguments> {
    statement
        .query()
        .bind(&scope.namespace)
        .bind(i32::try_from(max_attempts).unwrap_or(i32::MAX))
        .bind((!scope.topics.is_empty()).then_some(scope.topics.as_slice()))
        .bind(&scope.tenant)
}

pub(crate) fn max_bytes(request: &ClaimRequest) -> i64 {
    i64::try_from(request.max_bytes).unwrap_or(i64::MAX)
}

fn policy(ordering: &KeyOrdering) -> (bool, bool, &[String]) {
    match ordering {
        KeyOrdering::None => (false, false, &[]),
        KeyOrdering::PerKey { dead_head, except } => (true, *dead_head == DeadHead::Block, except),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use posthaste_core::lifecycle::LeaseToken;
    use posthaste_core::store::WorkerId;

    use super::*;

    #[test]
    fn a_claim_scans_no_further_than_its_limit() {
        let request = |scan_limit| ClaimRequest {
            worker: WorkerId::new(),
            token: LeaseToken::new(),
            limit: 100,
            max_bytes: 1,
            scan_limit,
            lease: Duration::from_secs(1),
            max_attempts: 1,
            ordering: KeyOrdering::None,
            scope: Scope::default(),
            left_out: Vec::new(),
            pipelined: false,
        };
        let limited = |scan_limit| scans(&request(Some(scan_limit))).collect::<Vec<_>>();
        let expected = [LaneScan::Rows(200), LaneScan::Lanes(FEW_LANES), LaneScan::Rows(4_000)];
        assert_eq!(limited(4_000), expected);
        assert_eq!(limited(50), [LaneScan::Rows(50)]);
        let free: Vec<_> = scans(&request(None)).collect();
        let expected = [LaneScan::Rows(200), LaneScan::Lanes(MAX_LANES), LaneScan::Everything];
        assert_eq!(free, expected);
    }
}
