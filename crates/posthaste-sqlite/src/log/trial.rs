//! All that a relay writes of a log is tried, and rolled back, before the first publication: on the newest rows of the log if there
//! are any, else on one that is inserted.

use std::time::Duration;

use posthaste_core::lifecycle::Verdict;
use posthaste_core::store::{Scope, StoreErrorKind};
use posthaste_core::validate::TypeNameRule;
use posthaste_core::{MessageId, OutboxOptions, StoreError};
use posthaste_sql::RowChange;
use posthaste_sql::log::{Failure, Suspects};
use sqlx::types::Json;
use sqlx::{Connection, SqliteConnection};

use super::SqliteLogStore;
use super::settle::{Retried, Unwritten, swallowed};
use crate::begin::begin;
use crate::error::store_error;

/// On so many rows at once: those of one batch may be in each other's way.
const ROWS: i64 = 20;

const ACCEPT: &str = "let the constraints and triggers of the table of failures accept it; nothing is published before";

impl SqliteLogStore {
    /// Whether the database takes what a relay writes. That another transaction is writing is no answer, and no error.
    pub(super) async fn try_writes(&self) -> Result<(), StoreError> {
        let mut tx = match begin(self.pool()).await.map_err(|error| self.inner.error(error)) {
            Err(error) if error.kind == StoreErrorKind::Contention => {
                tracing::debug!(%error, "the verdicts could not be tried; others write");
                return Ok(());
            }
            begun => begun?,
        };
        let tried = self.try_all(&mut tx).await;
        tx.rollback().await.map_err(store_error)?;
        tried
    }

    async fn try_all(&self, conn: &mut SqliteConnection) -> Result<(), StoreError> {
        self.try_checkpoint(conn).await?;
        let rows = self.newest(conn, ROWS).await.map_err(|error| self.inner.error(error))?;
        if rows.is_empty() {
            let inserted = self.insert_one(conn).await;
            return self.try_on(conn, &inserted).await;
        }
        let Err(error) = self.try_on(conn, &rows).await else {
            return Ok(());
        };
        if error.kind.may_be_a_refusal() && self.takes_any(conn, &rows).await {
            return Err(error.of_some_rows());
        }
        Err(error)
    }

    /// Whether the database takes everything of one of these rows, or of a new one.
    async fn takes_any(&self, conn: &mut SqliteConnection, rows: &[i64]) -> bool {
        for row in rows {
            if self.try_on(conn, &[*row]).await.is_ok() {
                return true;
            }
        }
        let inserted = self.insert_one(conn).await;
        !inserted.is_empty() && self.try_on(conn, &inserted).await.is_ok()
    }

    /// Undoes what it tries.
    async fn try_on(&self, conn: &mut SqliteConnection, rows: &[i64]) -> Result<(), StoreError> {
        if rows.is_empty() {
            return Ok(());
        }
        let mut trial = conn.begin().await.map_err(store_error)?;
        let tried = self.try_verdicts(&mut trial, rows).await;
        trial.rollback().await.map_err(store_error)?;
        tried
    }

    /// The rows fail, and then have every verdict as failed ones. That they die at once comes last: a relay with a net for dead letters
    /// can do without that.
    async fn try_verdicts(&self, conn: &mut SqliteConnection, rows: &[i64]) -> Result<(), StoreError> {
        let mut failing = conn.begin().await.map_err(store_error)?;
        let tried = self.try_retries(&mut failing, rows).await;
        failing.rollback().await.map_err(store_error)?;
        tried?;
        let died = self.try_batch(conn, fail(rows, true)).await;
        self.heard("dead", died).map_err(StoreError::of_deaths)
    }

    async fn try_retries(&self, conn: &mut SqliteConnection, rows: &[i64]) -> Result<(), StoreError> {
        let failed = self.try_batch(conn, fail(rows, false)).await;
        self.heard("retry", failed)?;
        let numbers = self.failed_rows(conn, rows).await.map_err(store_error)?;
        for verdict in Verdict::trials() {
            let change = RowChange::of(&verdict, &self.inner.map);
            if change.status.is_none() {
                continue;
            }
            let retried = |number: &i64| {
                Unwritten::Retried(Retried {
                    id: MessageId::new(),
                    number: *number,
                    counted: 0,
                    change: change.clone(),
                })
            };
            let mut trial = conn.begin().await.map_err(store_error)?;
            let tried = self.try_batch(&mut trial, numbers.iter().map(retried).collect()).await;
            trial.rollback().await.map_err(store_error)?;
            self.heard(verdict.name(), tried)
                .map_err(|error| error.of_verdict(&verdict))?;
        }
        Ok(())
    }

    async fn try_batch(&self, conn: &mut SqliteConnection, batch: Vec<Unwritten>) -> sqlx::Result<()> {
        self.inner.write_batch(conn, &batch, &Suspects::default()).await
    }

    /// How far the log is settled, as it is written down already.
    async fn try_checkpoint(&self, conn: &mut SqliteConnection) -> Result<(), StoreError> {
        let statements = &self.inner.statements.upkeep;
        let written = sqlx::query(statements.trial_checkpoint.sql())
            .fetch_optional(conn)
            .await;
        let Err(error) = written.and_then(|row| row.ok_or_else(swallowed)) else {
            return Ok(());
        };
        let error = self.inner.error(error);
        Err(StoreError {
            message: format!(
                "it cannot be written down how far the log is settled (tried and rolled back): {}",
                error.message
            ),
            remedy: error.remedy.or(Some("look at the triggers of the reader's table")),
            ..error
        })
    }

    async fn newest(&self, conn: &mut SqliteConnection, limit: i64) -> sqlx::Result<Vec<i64>> {
        let rows = sqlx::query_scalar(self.inner.statements.upkeep.trial_rows.sql()).bind(limit);
        rows.fetch_all(conn).await
    }

    async fn failed_rows(&self, conn: &mut SqliteConnection, rows: &[i64]) -> sqlx::Result<Vec<i64>> {
        let numbers = sqlx::query_scalar(self.inner.statements.upkeep.trial_failed.sql()).bind(Json(rows));
        numbers.fetch_all(conn).await
    }

    /// A row that is never there for anybody else, if the log takes it.
    async fn insert_one(&self, conn: &mut SqliteConnection) -> Vec<i64> {
        let options = OutboxOptions::new().type_names(TypeNameRule::Any);
        let Some(message) = self.inner.map.trial_message(&Scope::default()) else {
            return Vec::new();
        };
        match self.outbox(options).enqueue(&mut *conn, message).await {
            Ok(_) => self.newest(conn, 1).await.unwrap_or_default(),
            Err(error) => {
                tracing::debug!(%error, "no row could be inserted to try verdicts on");
                Vec::new()
            }
        }
    }

    fn heard(&self, step: &str, tried: sqlx::Result<()>) -> Result<(), StoreError> {
        let Err(error) = tried else { return Ok(()) };
        let error = self.inner.error(error);
        Err(match error.kind {
            StoreErrorKind::Other | StoreErrorKind::SchemaMissing => error.in_trial(step, ACCEPT),
            _ => error,
        })
    }
}

/// Of rows of the log.
fn fail(rows: &[i64], dead: bool) -> Vec<Unwritten> {
    let failure = |row: &i64| {
        Unwritten::Failed(Failure {
            id: *row,
            delay: Duration::from_secs(1),
            dead,
            error: Some("Posthaste tries whether the table takes its verdicts, and undoes it".to_owned()),
        })
    };
    rows.iter().map(failure).collect()
}
