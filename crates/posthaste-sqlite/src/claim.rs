//! Handing out work.

use std::time::Duration;

use posthaste_core::MessageId;
use posthaste_core::reclaim::reclaim_limit;
use posthaste_core::store::{Claim, ClaimRequest, DeadHead, KeyOrdering, Scope};
use posthaste_sql::RowChange;
use posthaste_sql::table::Role;
use sqlx::query::Query;
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::types::Json;
use sqlx::{Connection, Row, Sqlite, SqliteConnection};

use crate::SqliteStore;
use crate::begin::{BEGIN, acquire};
use crate::rows::{claimed, ids_in_order};
use crate::statements::{Claims, InOrder, Split, Statement};
use crate::taking::{Taking, is_refusal};

/// Pending rows in the first window of an ordered claim, for each row that is wanted; and how fast the window grows.
const WINDOW_FACTOR: u32 = 4;

/// What the probe found.
struct Work {
    /// Rows may be due; their keys may still hold them back.
    due: bool,
    /// The most attempts of a row that a crashed worker left behind.
    most_tried: Option<u32>,
    /// Rows have used all their attempts.
    exhausted: bool,
}

impl Work {
    fn is_none(&self) -> bool {
        !self.due && self.most_tried.is_none() && !self.exhausted
    }
}

/// Which rows a claim takes.
#[derive(Clone, Copy)]
enum Wanted {
    /// Those that wait to be claimed.
    Pending,
    /// Those that crashed workers left behind.
    Expired,
}

impl SqliteStore {
    /// Asks for the write lock only if there is something to write.
    pub(crate) async fn claim_if_any(&self, request: &ClaimRequest) -> sqlx::Result<Claim> {
        let mut conn = acquire(&self.pool).await?;
        if self.probe(&mut conn, request).await?.is_none() {
            return Ok(Claim::default());
        }
        match self.claim_once(&mut conn, request, Taking::on_trust(request)).await {
            // A claim may have taken some rows before one was refused, so all is done again.
            Err(error) if is_refusal(&error) => self.claim_once(&mut conn, request, Taking::with_care(request)).await,
            claim => claim,
        }
    }

    async fn claim_once(
        &self,
        conn: &mut SqliteConnection,
        request: &ClaimRequest,
        taking: Taking<'_>,
    ) -> sqlx::Result<Claim> {
        let mut tx = conn.begin_with(BEGIN).await?;
        let claim = self.claim_on(&mut tx, request, taking).await?;
        tx.commit().await?;
        Ok(claim)
    }

    /// Runs under the write lock, so claims are serialised whatever their order.
    async fn claim_on(
        &self,
        conn: &mut SqliteConnection,
        request: &ClaimRequest,
        mut taking: Taking<'_>,
    ) -> sqlx::Result<Claim> {
        // Once more: another relay may have taken what the first probe saw.
        let work = self.probe(conn, request).await?;
        let died = if work.exhausted {
            self.sweep_apart(conn, request).await?
        } else {
            Vec::new()
        };
        let mut rows = Vec::new();
        if let Some(most_tried) = work.most_tried {
            let limit = reclaim_limit(most_tried, request.max_attempts, request.limit);
            rows = self.take(conn, &mut taking, request, Wanted::Expired, limit).await?;
        }
        // What crashed workers left may be held back by its keys; that must not hold up all others.
        let reclaimed = !rows.is_empty();
        if !reclaimed && work.due {
            rows = self
                .take(conn, &mut taking, request, Wanted::Pending, request.limit)
                .await?;
        }
        let (messages, unfindable) = claimed(rows, &self.map)?;
        taking.refused.extend(unfindable);
        Ok(Claim {
            messages,
            reclaimed,
            died,
            refused: taking.refused,
        })
    }

    async fn probe(&self, conn: &mut SqliteConnection, request: &ClaimRequest) -> sqlx::Result<Work> {
        let probe = match self.statements.claims() {
            Claims::Split(claims) => &claims.probe,
            Claims::InOrder(claims) => &claims.probe_in_order,
        };
        let row = sqlx::query(probe.sql())
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

    async fn take(
        &self,
        conn: &mut SqliteConnection,
        taking: &mut Taking<'_>,
        request: &ClaimRequest,
        wanted: Wanted,
        limit: u32,
    ) -> sqlx::Result<Vec<SqliteRow>> {
        match self.statements.claims() {
            Claims::Split(claims) => self.take_split(claims, conn, taking, request, wanted, limit).await,
            Claims::InOrder(claims) => self.take_in_order(claims, conn, taking, request, wanted, limit).await,
        }
    }

    async fn take_split(
        &self,
        claims: &Split,
        conn: &mut SqliteConnection,
        taking: &mut Taking<'_>,
        request: &ClaimRequest,
        wanted: Wanted,
        limit: u32,
    ) -> sqlx::Result<Vec<SqliteRow>> {
        let (ordered, dead_blocks, except) = policy(&request.ordering);
        let statement = match (wanted, ordered) {
            (Wanted::Expired, _) => &claims.reclaim,
            (Wanted::Pending, true) => &claims.claim_per_key,
            (Wanted::Pending, false) => &claims.claim_any,
        };
        let claim = |statement: &Statement, left_out: Vec<MessageId>| {
            let query = self.claim_query(statement, request, limit);
            let query = match (wanted, ordered) {
                (Wanted::Expired, _) => query.bind(ordered).bind(dead_blocks).bind(Json(except)),
                (Wanted::Pending, true) => query.bind(dead_blocks).bind(Json(except)).bind(request.scan_limit),
                (Wanted::Pending, false) => query,
            };
            query.bind(Json(left_out))
        };
        taking.rows(self, conn, statement, claim).await
    }

    /// Looks at more rows as long as all that it saw are held back by their keys.
    async fn take_in_order(
        &self,
        claims: &InOrder,
        conn: &mut SqliteConnection,
        taking: &mut Taking<'_>,
        request: &ClaimRequest,
        wanted: Wanted,
        limit: u32,
    ) -> sqlx::Result<Vec<SqliteRow>> {
        let (ordered, dead_blocks, except) = policy(&request.ordering);
        let most = request.scan_limit.map_or(i64::MAX, i64::from).max(i64::from(limit));
        let mut window = (i64::from(request.limit) * i64::from(WINDOW_FACTOR)).min(most);
        loop {
            let claim = |statement: &Statement, left_out: Vec<MessageId>| {
                self.claim_query(statement, request, limit)
                    .bind(ordered)
                    .bind(dead_blocks)
                    .bind(Json(except))
                    .bind(window)
                    .bind(matches!(wanted, Wanted::Expired))
                    .bind(self.kept_until(Role::CreatedAt, Duration::ZERO))
                    .bind(Json(left_out))
            };
            let rows = taking.rows(self, conn, &claims.claim_in_order, claim).await?;
            if !rows.is_empty() || window >= most || !self.has_more_pending(claims, conn, request, window).await? {
                return Ok(rows);
            }
            window = window.saturating_mul(i64::from(WINDOW_FACTOR)).min(most);
        }
    }

    async fn has_more_pending(
        &self,
        claims: &InOrder,
        conn: &mut SqliteConnection,
        request: &ClaimRequest,
        than: i64,
    ) -> sqlx::Result<bool> {
        sqlx::query_scalar(claims.has_more_pending.sql())
            .bind(&request.scope.namespace)
            .bind(than)
            .fetch_one(conn)
            .await
    }

    fn claim_query<'q>(
        &self,
        statement: &Statement,
        request: &'q ClaimRequest,
        limit: u32,
    ) -> Query<'q, Sqlite, SqliteArguments> {
        sqlx::query(statement.sql())
            .bind(&request.scope.namespace)
            .bind(i64::from(request.max_attempts))
            .bind(topics(&request.scope))
            .bind(&request.scope.tenant)
            .bind(i64::from(limit))
            .bind(i64::try_from(request.max_bytes).unwrap_or(i64::MAX))
            .bind(request.worker.as_uuid().hyphenated())
            .bind(self.map.fence(request.worker, request.token))
            .bind(self.kept_until(Role::LockedUntil, request.lease))
    }

    /// Gives up exhausted rows. Where the table has a dead-letter table this runs in a transaction of the caller's.
    /// A death that the table refuses must not keep all others from being claimed. The janitor sweeps too, and says why.
    async fn sweep_apart(&self, conn: &mut SqliteConnection, request: &ClaimRequest) -> sqlx::Result<Vec<MessageId>> {
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
        conn: &mut SqliteConnection,
        scope: &Scope,
        max_attempts: u32,
    ) -> sqlx::Result<Vec<MessageId>> {
        let exhausted = RowChange::exhausted(&self.map);
        let rows = sqlx::query(self.statements.rows.sweep.sql())
            .bind(&scope.namespace)
            .bind(i64::from(max_attempts))
            .bind(topics(scope))
            .bind(&scope.tenant)
            .bind(exhausted.error)
            .bind(exhausted.attempts)
            .fetch_all(&mut *conn)
            .await?;
        let died = ids_in_order(rows, &self.map)?;
        self.insert_dead_letters(conn, &died).await?;
        Ok(died)
    }

    /// Copies rows that died to the dead-letter table, if there is one.
    pub(crate) async fn insert_dead_letters(
        &self,
        conn: &mut SqliteConnection,
        died: &[MessageId],
    ) -> sqlx::Result<()> {
        if let (Some(dead_letters), false) = (&self.statements.dead_letters, died.is_empty()) {
            let insert = sqlx::query(dead_letters.insert_dead_letter.sql()).bind(Json(died));
            insert.execute(conn).await?;
        }
        Ok(())
    }
}

pub(crate) fn policy(ordering: &KeyOrdering) -> (bool, bool, &[String]) {
    match ordering {
        KeyOrdering::None => (false, false, &[]),
        KeyOrdering::PerKey { dead_head, except } => (true, *dead_head == DeadHead::Block, except),
    }
}

pub(crate) fn topics(scope: &Scope) -> Option<Json<&[String]>> {
    (!scope.topics.is_empty()).then_some(Json(&scope.topics))
}
