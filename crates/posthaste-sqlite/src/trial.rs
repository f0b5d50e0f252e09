//! Every verdict is tried, and rolled back, before the first publication: on some open rows of the relay's scope if there are any, else on one
//! that is inserted.

use std::time::Duration;

use posthaste_core::lifecycle::{LeaseToken, Settlement, Verdict};
use posthaste_core::store::{Scope, StoreErrorKind, WorkerId};
use posthaste_core::validate::TypeNameRule;
use posthaste_core::{MessageId, OutboxOptions, StoreError};
use sqlx::{Executor, SqliteConnection};

use crate::SqliteStore;
use crate::begin::begin;
use crate::claim::topics;
use crate::error::store_error;
use crate::rows::{id, is_found_by_id};

/// On so many rows at once: those of one batch may be in each other's way.
const ROWS: i64 = 20;

/// Longer than a trial takes.
const LEASE: Duration = Duration::from_mins(1);

/// What is undone after each step.
const MARK: &str = "savepoint posthaste_trial";
const UNDO: &str = "rollback to posthaste_trial";

/// What is undone after each row.
const MARK_ROWS: &str = "savepoint posthaste_rows";
const UNDO_ROWS: &str = "rollback to posthaste_rows";

const ACCEPT: &str = "let the table's constraints, triggers and unique indexes accept it, or correct the map; nothing is \
                      published before";

impl SqliteStore {
    /// Whether the table takes every verdict. That another transaction is writing is no answer, and no error.
    pub(crate) async fn try_verdicts(&self, scope: &Scope) -> Result<(), StoreError> {
        let mut tx = match begin(&self.pool).await.map_err(|error| self.error(error)) {
            Err(error) if error.kind == StoreErrorKind::Contention => {
                tracing::debug!(%error, "the verdicts could not be tried; others write");
                return Ok(());
            }
            begun => begun?,
        };
        let tried = self.try_scope(&mut tx, scope).await;
        tx.rollback().await.map_err(store_error)?;
        tried
    }

    async fn try_scope(&self, conn: &mut SqliteConnection, scope: &Scope) -> Result<(), StoreError> {
        let mut rows = self.open_rows(conn, scope).await.map_err(|error| self.error(error))?;
        if rows.is_empty() {
            rows.extend(self.insert_one(conn, scope).await);
            return self.try_on(conn, &rows).await;
        }
        conn.execute(MARK_ROWS).await.map_err(store_error)?;
        let Err(error) = self.try_on(conn, &rows).await else {
            return Ok(());
        };
        if error.kind.may_be_a_refusal() && self.takes_any(conn, scope, &rows).await? {
            return Err(error.of_some_rows());
        }
        Err(error)
    }

    /// Whether the table takes every verdict on one of these rows, or on a new one.
    async fn takes_any(
        &self,
        conn: &mut SqliteConnection,
        scope: &Scope,
        rows: &[MessageId],
    ) -> Result<bool, StoreError> {
        for row in rows {
            conn.execute(UNDO_ROWS).await.map_err(store_error)?;
            if self.try_on(conn, &[*row]).await.is_ok() {
                return Ok(true);
            }
        }
        conn.execute(UNDO_ROWS).await.map_err(store_error)?;
        let Some(row) = self.insert_one(conn, scope).await else {
            return Ok(false);
        };
        Ok(self.try_on(conn, &[row]).await.is_ok())
    }

    async fn try_on(&self, conn: &mut SqliteConnection, rows: &[MessageId]) -> Result<(), StoreError> {
        if rows.is_empty() {
            return Ok(());
        }
        let token = LeaseToken::new();
        let claimed = self.claim_by_id(conn, rows, WorkerId::new(), token, LEASE).await;
        self.heard("claim", claimed, rows.len())?;
        for verdict in Verdict::trials() {
            conn.execute(MARK).await.map_err(store_error)?;
            let settlement = |id: &MessageId| Settlement {
                id: *id,
                token,
                verdict: verdict.clone(),
                version: None,
                without_letter: false,
            };
            let settlements: Vec<_> = rows.iter().map(settlement).collect();
            let settled = self.settle_on(conn, &settlements).await;
            self.heard(verdict.name(), settled.map(|settled| settled.len()), rows.len())
                .map_err(|error| error.of_verdict(&verdict))?;
            conn.execute(UNDO).await.map_err(store_error)?;
        }
        Ok(())
    }

    async fn open_rows(&self, conn: &mut SqliteConnection, scope: &Scope) -> sqlx::Result<Vec<MessageId>> {
        let rows = sqlx::query(self.statements.rows.trial_rows.sql())
            .bind(ROWS)
            .bind(&scope.namespace)
            .bind(topics(scope))
            .bind(&scope.tenant);
        let rows = rows.fetch_all(conn).await?;
        let mut ids = Vec::with_capacity(rows.len());
        for row in &rows {
            // What becomes of others is never written.
            if is_found_by_id(row)? {
                ids.push(id(row, "id", &self.map)?);
            }
        }
        Ok(ids)
    }

    /// A row that is never there for anybody else, if the table takes what a map knows of.
    async fn insert_one(&self, conn: &mut SqliteConnection, scope: &Scope) -> Option<MessageId> {
        let options = OutboxOptions::new()
            .namespace(scope.namespace.clone())
            .type_names(TypeNameRule::Any);
        match self.outbox(options).enqueue(conn, self.map.trial_message(scope)?).await {
            Ok(enqueued) => Some(enqueued.id()),
            Err(error) => {
                tracing::debug!(%error, "no row could be inserted to try verdicts on");
                None
            }
        }
    }

    /// Whether all rows took a step.
    fn heard(&self, step: &str, changed: sqlx::Result<usize>, of: usize) -> Result<(), StoreError> {
        let error = match changed {
            Ok(changed) if changed >= of => return Ok(()),
            Ok(_) => StoreError {
                kind: StoreErrorKind::Other,
                message: "the row stays as it was; a trigger of the table ignores it".to_owned(),
                remedy: Some(ACCEPT),
                source: None,
            },
            Err(error) => self.error(error),
        };
        Err(match error.kind {
            StoreErrorKind::Other | StoreErrorKind::SchemaMissing => error.in_trial(step, ACCEPT),
            _ => error,
        })
    }
}
