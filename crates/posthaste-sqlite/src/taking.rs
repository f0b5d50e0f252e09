//! Taking rows of which the table may refuse some.
//!
//! A constraint that old rows do not meet, or a trigger, refuses the claim of one row, and with it the statement that claims
//! many. Such a row is found and left out; what follows it in its key waits, and no others do.

use std::time::Duration;

use posthaste_core::MessageId;
use posthaste_core::lifecycle::LeaseToken;
use posthaste_core::store::{ClaimRequest, Halving, RefusedRow, SearchDeadline, WorkerId};
use posthaste_sql::table::Role;
use sqlx::query::Query;
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::types::Json;
use sqlx::{Connection, Sqlite, SqliteConnection};

use crate::SqliteStore;
use crate::error::store_error;
use crate::rows::id;
use crate::statements::Statement;

/// How the rows of one claim are taken.
pub(crate) struct Taking<'a> {
    request: &'a ClaimRequest,
    left_out: Vec<MessageId>,
    /// Until when rows are looked for that are refused, if they are.
    with_care: Option<SearchDeadline>,
    pub(crate) refused: Vec<RefusedRow>,
}

impl<'a> Taking<'a> {
    /// As if no row were refused, which costs nothing.
    pub(crate) fn on_trust(request: &'a ClaimRequest) -> Self {
        Self {
            request,
            left_out: request.left_out.clone(),
            with_care: None,
            refused: Vec::new(),
        }
    }

    /// With a savepoint before each statement, so that those rows are found which are refused.
    pub(crate) fn with_care(request: &'a ClaimRequest) -> Self {
        Self {
            with_care: Some(SearchDeadline::begin()),
            ..Self::on_trust(request)
        }
    }

    /// Runs a statement that takes rows. `query` binds its arguments, the last of which are the rows that are left out.
    pub(crate) async fn rows<'q>(
        &mut self,
        store: &SqliteStore,
        conn: &mut SqliteConnection,
        statement: &Statement,
        query: impl Fn(&Statement, Vec<MessageId>) -> Query<'q, Sqlite, SqliteArguments>,
    ) -> sqlx::Result<Vec<SqliteRow>> {
        let Some(deadline) = self.with_care else {
            return query(statement, self.left_out.clone()).fetch_all(conn).await;
        };
        // Each round leaves out what the one before has found.
        loop {
            let mut apart = conn.begin().await?;
            let error = match query(statement, self.left_out.clone()).fetch_all(&mut *apart).await {
                Err(error) if is_refusal(&error) => error,
                taken => {
                    let taken = taken?;
                    apart.commit().await?;
                    return Ok(taken);
                }
            };
            apart.rollback().await?;
            if !self.refused.is_empty() && deadline.is_over() {
                return Ok(Vec::new());
            }
            let Some(listing) = statement.listing() else {
                return Err(error);
            };
            let listed = query(&listing, self.left_out.clone()).fetch_all(&mut *conn).await?;
            let listed: Vec<_> = listed
                .iter()
                .map(|row| id(row, "id", &store.map))
                .collect::<sqlx::Result<_>>()?;
            let refused = self.find_refused(store, conn, listed, deadline).await?;
            if refused.is_empty() {
                return Err(error);
            }
            self.left_out.extend(refused.iter().map(|row| row.id));
            self.refused.extend(refused);
        }
    }

    /// Which of these rows cannot be claimed. What is tried is undone.
    async fn find_refused(
        &self,
        store: &SqliteStore,
        conn: &mut SqliteConnection,
        ids: Vec<MessageId>,
        deadline: SearchDeadline,
    ) -> sqlx::Result<Vec<RefusedRow>> {
        let mut halving = Halving::new(ids, deadline);
        let mut all = conn.begin().await?;
        while let Some(group) = halving.next_group() {
            let mut apart = all.begin().await?;
            let ClaimRequest {
                worker, token, lease, ..
            } = *self.request;
            match store.claim_by_id(&mut apart, &group, worker, token, lease).await {
                Ok(_) => {
                    apart.commit().await?;
                    halving.tried(group, None);
                }
                Err(error) if is_refusal(&error) => {
                    apart.rollback().await?;
                    halving.tried(group, Some(store_error(error).to_string()));
                }
                Err(error) => return Err(error),
            }
        }
        all.rollback().await?;
        Ok(halving.into_refused())
    }
}

impl SqliteStore {
    /// Claims rows; returns how many it claimed.
    pub(crate) async fn claim_by_id(
        &self,
        conn: &mut SqliteConnection,
        rows: &[MessageId],
        worker: WorkerId,
        token: LeaseToken,
        lease: Duration,
    ) -> sqlx::Result<usize> {
        let claim = sqlx::query(self.statements.rows.trial_claim.sql())
            .bind(Json(rows))
            .bind(worker.as_uuid().hyphenated())
            .bind(self.map.fence(worker, token))
            .bind(self.kept_until(Role::LockedUntil, lease));
        Ok(claim.fetch_all(conn).await?.len())
    }
}

/// Whether the table objects to what was to be written.
pub(crate) fn is_refusal(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Database(database)
        if crate::error::by_code(database.as_ref()).0.may_be_a_refusal())
}
