//! Every verdict is tried, and rolled back, before the first publication.
//!
//! On some open rows of the relay's scope if there are any, else on one that is inserted. Where that cannot be, what the server says without
//! a row must do: rights are checked by statements that match nothing, and labels by the constraints on their column.

use std::time::Duration;

use posthaste_core::lifecycle::{LeaseToken, Settlement, Verdict};
use posthaste_core::store::{Scope, StoreErrorKind, WorkerId};
use posthaste_core::validate::TypeNameRule;
use posthaste_core::{MessageId, OutboxOptions, StoreError};
use posthaste_sql::TableMap;
use posthaste_sql::table::{Role, Table};
use sqlx::{AssertSqlSafe, Executor, PgConnection, Row};

use crate::PostgresStore;
use crate::dialect::PostgresDialect;
use crate::error::store_error;
use crate::pooling;
use crate::rows::ids;
use posthaste_sql::dialect::Dialect;

/// Others do not wait for a trial for long, and it waits for none. Constraints speak when their statement ends.
const BEGIN_TRIAL: &str = "begin isolation level read committed;
    set local lock_timeout = '1s'; set local statement_timeout = '5s'; set local idle_in_transaction_session_timeout = '5s';
    set constraints all immediate";

/// On so many rows at once: those of one batch may be in each other's way.
const ROWS: i64 = 20;

/// Longer than a trial takes.
const LEASE: Duration = Duration::from_mins(1);

/// What is undone after each step.
const MARK: &str = "savepoint posthaste_trial";
const UNDO: &str = "rollback to savepoint posthaste_trial";

/// What is undone after each row.
const MARK_ROWS: &str = "savepoint posthaste_rows";
const UNDO_ROWS: &str = "rollback to savepoint posthaste_rows";

const GRANT: &str = "grant the relay's user select on the columns of the outbox that the map names, and update on those that it \
                     changes; nothing is published before";
const GRANT_DEAD_LETTER: &str = "grant the relay's user insert on the dead-letter table; nothing is published before";
const ACCEPT: &str = "let the table's constraints, triggers and unique indexes accept it, or correct the map; nothing is \
                      published before";

impl PostgresStore {
    /// Whether the table takes every verdict. That another transaction has a lock is no answer, and no error.
    pub(crate) async fn try_verdicts(&self, scope: &Scope) -> Result<(), StoreError> {
        let mut tx = pooling::begin(&self.pool, BEGIN_TRIAL).await.map_err(store_error)?;
        let tried = self.try_scope(&mut tx, scope).await;
        let ended = tx.rollback().await.map_err(store_error);
        match tried {
            Err(error) if error.kind == StoreErrorKind::Contention => {
                tracing::debug!(%error, "the verdicts could not be tried; others hold the table");
                Ok(())
            }
            Err(error) => Err(error),
            Ok(()) => ended,
        }
    }

    async fn try_scope(&self, conn: &mut PgConnection, scope: &Scope) -> Result<(), StoreError> {
        let mut rows = self.open_rows(conn, scope).await?;
        if rows.is_empty() {
            rows.extend(self.insert_visible(conn, scope).await?);
            if rows.is_empty() {
                self.try_labels(conn).await?;
            }
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
    async fn takes_any(&self, conn: &mut PgConnection, scope: &Scope, rows: &[MessageId]) -> Result<bool, StoreError> {
        for row in rows {
            conn.execute(UNDO_ROWS).await.map_err(store_error)?;
            if self.try_on(conn, &[*row]).await.is_ok() {
                return Ok(true);
            }
        }
        conn.execute(UNDO_ROWS).await.map_err(store_error)?;
        let Some(row) = self.insert_one(conn, scope).await? else {
            return Ok(false);
        };
        Ok(self.try_on(conn, &[row]).await.is_ok())
    }

    async fn try_on(&self, conn: &mut PgConnection, rows: &[MessageId]) -> Result<(), StoreError> {
        let token = LeaseToken::new();
        self.try_claim(conn, rows, token).await?;
        for verdict in Verdict::trials() {
            conn.execute(MARK).await.map_err(store_error)?;
            let settled = self.settle_trial(conn, rows, token, &verdict).await;
            let settled = settled.map_err(|error| refused(verdict.name(), error, &self.map).of_verdict(&verdict))?;
            if settled < rows.len() {
                return Err(unheard(verdict.name()).of_verdict(&verdict));
            }
            conn.execute(UNDO).await.map_err(store_error)?;
        }
        Ok(())
    }

    /// Some rows of the scope that are open and free.
    async fn open_rows(&self, conn: &mut PgConnection, scope: &Scope) -> Result<Vec<MessageId>, StoreError> {
        conn.execute(MARK).await.map_err(store_error)?;
        let rows = self.statements.common.trial_rows.query().bind(ROWS);
        let topics = (!scope.topics.is_empty()).then_some(&scope.topics);
        let rows = rows.bind(&scope.namespace).bind(topics).bind(&scope.tenant);
        match rows.fetch_all(&mut *conn).await {
            Ok(rows) => ids(&rows, &self.map).map_err(store_error),
            // A table in which open rows are hard to find.
            Err(error) if sqlstate(&error) == Some("57014".into()) => {
                conn.execute(UNDO).await.map_err(store_error)?;
                Ok(Vec::new())
            }
            Err(error) => Err(refused("claim", error, &self.map)),
        }
    }

    /// The same, if it is found among the open ones: a trigger or a policy may keep it from relays, and then it says nothing
    /// about other rows.
    async fn insert_visible(&self, conn: &mut PgConnection, scope: &Scope) -> Result<Option<MessageId>, StoreError> {
        let Some(id) = self.insert_one(conn, scope).await? else {
            return Ok(None);
        };
        Ok(self.open_rows(conn, scope).await?.contains(&id).then_some(id))
    }

    /// A row that is never there for anybody else. Not all relays may insert, nor do all tables take what a map knows of.
    async fn insert_one(&self, conn: &mut PgConnection, scope: &Scope) -> Result<Option<MessageId>, StoreError> {
        let (Some(message), Some(table)) = (self.map.trial_message(scope), self.map.table(Table::Outbox)) else {
            return Ok(None);
        };
        let may_insert: bool = sqlx::query_scalar("select has_any_column_privilege(to_regclass($1), 'insert')")
            .persistent(false)
            .bind(table.quoted('"'))
            .fetch_one(&mut *conn)
            .await
            .map_err(store_error)?;
        if !may_insert {
            return Ok(None);
        }
        conn.execute(MARK).await.map_err(store_error)?;
        let options = OutboxOptions::new()
            .namespace(scope.namespace.clone())
            .type_names(TypeNameRule::Any);
        match self.outbox(options).enqueue(&mut *conn, message).await {
            Ok(enqueued) => Ok(Some(enqueued.id())),
            Err(error) => {
                tracing::debug!(%error, "no row could be inserted to try verdicts on");
                conn.execute(UNDO).await.map_err(store_error)?;
                Ok(None)
            }
        }
    }

    async fn try_claim(
        &self,
        conn: &mut PgConnection,
        rows: &[MessageId],
        token: LeaseToken,
    ) -> Result<(), StoreError> {
        let claimed = self.claim_by_id(conn, rows, WorkerId::new(), token, LEASE).await;
        let claimed = claimed.map_err(|error| refused("claim", error, &self.map))?;
        if claimed < rows.len() {
            return Err(unheard("claim"));
        }
        Ok(())
    }

    async fn settle_trial(
        &self,
        conn: &mut PgConnection,
        rows: &[MessageId],
        token: LeaseToken,
        verdict: &Verdict,
    ) -> sqlx::Result<usize> {
        let settlement = |id: &MessageId| Settlement {
            id: *id,
            token,
            verdict: verdict.clone(),
            version: None,
            without_letter: false,
        };
        let settlements: Vec<_> = rows.iter().map(settlement).collect();
        Ok(self.settling(&settlements).fetch_all(conn).await?.len())
    }

    /// What constraints on the status column alone say of every label that a relay writes there.
    async fn try_labels(&self, conn: &mut PgConnection) -> Result<(), StoreError> {
        let (Some(table), Some(column)) = (self.map.table(Table::Outbox), self.map.column(Role::Status)) else {
            return Ok(());
        };
        let constraints = sqlx::query(include_str!("../queries/catalogue/conditions.sql"))
            .persistent(false)
            .bind(table.quoted('"'))
            .bind(column.name.as_str())
            .fetch_all(&mut *conn)
            .await
            .map_err(store_error)?;
        let states = ["pending", "waiting", "processing", "delivered", "dead"];
        for (state, label) in states.iter().filter_map(|state| Some((state, self.map.label(state)?))) {
            for constraint in &constraints {
                let part = |name| constraint.try_get::<&str, _>(name).map_err(store_error);
                let (name, condition, type_name) = (part("name")?, part("condition")?, part("type_name")?);
                let literal = PostgresDialect.literal(&label.to_string());
                let sql = format!(
                    "select ({condition}) from (select {literal}::{type_name} as {}) as \"{}\"",
                    column.name.quoted('"'),
                    "posthaste_trial"
                );
                conn.execute(MARK).await.map_err(store_error)?;
                // The server's own condition on a label of the map. One that cannot be judged so says nothing.
                let accepts = sqlx::query_scalar::<_, Option<bool>>(AssertSqlSafe(sql))
                    .fetch_one(&mut *conn)
                    .await;
                conn.execute(UNDO).await.map_err(store_error)?;
                if matches!(accepts, Ok(Some(false))) {
                    return Err(StoreError {
                        kind: StoreErrorKind::Other,
                        message: format!(
                            "the table refuses the label `{label}` for the state `{state}`: the constraint {name} on {} says {condition}",
                            column.name
                        ),
                        remedy: Some(ACCEPT),
                        source: None,
                    });
                }
            }
        }
        Ok(())
    }
}

fn refused(step: &str, error: sqlx::Error, map: &TableMap) -> StoreError {
    let error = store_error(error);
    let dead_letter = map.table(Table::DeadLetter).map(|table| table.name.as_str());
    let is_dead_letter = dead_letter.is_some_and(|name| error.message.ends_with(&format!("for table {name}")));
    match error.kind {
        StoreErrorKind::Access if is_dead_letter => error.in_trial(step, GRANT_DEAD_LETTER),
        StoreErrorKind::Access => error.in_trial(step, GRANT),
        StoreErrorKind::Other | StoreErrorKind::SchemaMissing => error.in_trial(step, ACCEPT),
        _ => error,
    }
}

/// A trigger or a policy kept the row as it was, without an error.
fn unheard(step: &str) -> StoreError {
    let error = StoreError {
        kind: StoreErrorKind::Other,
        message: "the row stays as it was; a trigger or a policy of the table ignores it".to_owned(),
        remedy: None,
        source: None,
    };
    error.in_trial(step, ACCEPT)
}

fn sqlstate(error: &sqlx::Error) -> Option<String> {
    Some(error.as_database_error()?.code()?.into_owned())
}
