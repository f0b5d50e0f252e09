//! Taking back what crashed workers held, where the table says since when a row is held and not until when.

use posthaste_core::MessageId;
use posthaste_core::lifecycle::State;
use posthaste_core::store::{Halving, RecoverRequest, Recovered, SearchDeadline};
use posthaste_sql::RowChange;
use posthaste_sql::table::Role;
use sqlx::query::Query;
use sqlx::sqlite::SqliteArguments;
use sqlx::types::Json;
use sqlx::{Connection, Row, Sqlite, SqliteConnection};

use crate::SqliteStore;
use crate::begin::begin;
use crate::claim::topics;
use crate::error::store_error;
use crate::rows::{id, ids_in_order};
use crate::statements::Statement;
use crate::taking::is_refusal;

/// Which rows are taken back.
pub(crate) struct Recover<'a> {
    pub(crate) statement: &'a Statement,
    pub(crate) request: &'a RecoverRequest,
}

impl SqliteStore {
    /// Takes back all but those rows that the table refuses to change.
    pub(crate) async fn recover_stalled(&self, recover: &Recover<'_>) -> sqlx::Result<Recovered> {
        let mut recovered = Recovered::default();
        let Some(listing) = recover.statement.listing() else {
            return Ok(recovered);
        };
        let mut tx = begin(&self.pool).await?;
        let stalled = self.recovery(&listing, recover, None).fetch_all(&mut *tx).await?;
        let stalled: sqlx::Result<_> = stalled.iter().map(|row| id(row, "id", &self.map)).collect();
        let mut halving = Halving::anywhere(stalled?, SearchDeadline::begin());
        while let Some(group) = halving.next_group() {
            let mut apart = tx.begin().await?;
            match self.recover_some(&mut apart, recover, &group, &mut recovered).await {
                Ok(()) => {
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
        tx.commit().await?;
        recovered.refused = halving.into_refused();
        Ok(recovered)
    }

    /// Takes some rows back; says nothing of them if that is refused.
    async fn recover_some(
        &self,
        conn: &mut SqliteConnection,
        recover: &Recover<'_>,
        only: &[MessageId],
        recovered: &mut Recovered,
    ) -> sqlx::Result<()> {
        let rows = self
            .recovery(recover.statement, recover, Some(only))
            .fetch_all(&mut *conn)
            .await?;
        let (mut died, mut pending) = (Vec::new(), Vec::new());
        for row in rows {
            let label: String = row.try_get("status")?;
            let side = if self.map.state(&label) == Some(State::Dead) {
                &mut died
            } else {
                &mut pending
            };
            side.push(row);
        }
        let died = ids_in_order(died, &self.map)?;
        self.insert_dead_letters(conn, &died).await?;
        recovered.pending.extend(ids_in_order(pending, &self.map)?);
        recovered.died.extend(died);
        Ok(())
    }

    fn recovery<'q>(
        &self,
        statement: &Statement,
        recover: &Recover<'q>,
        only: Option<&'q [MessageId]>,
    ) -> Query<'q, Sqlite, SqliteArguments> {
        let exhausted = RowChange::exhausted(&self.map);
        sqlx::query(statement.sql())
            .bind(&recover.request.scope.namespace)
            .bind(i64::from(recover.request.max_attempts))
            .bind(topics(&recover.request.scope))
            .bind(&recover.request.scope.tenant)
            .bind(exhausted.error)
            .bind(self.kept_until(Role::LockedAt, recover.request.stalled_after))
            .bind(only.map(Json))
            .bind(exhausted.attempts)
    }
}
