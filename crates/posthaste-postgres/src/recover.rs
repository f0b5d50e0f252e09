//! Taking back what crashed workers held, where the table says since when a row is held and not until when.

use posthaste_core::MessageId;
use posthaste_core::store::{Halving, RecoverRequest, Recovered, SearchDeadline};
use posthaste_sql::RowChange;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{Connection, Postgres, Row};

use crate::PostgresStore;
use crate::claim::in_scope;
use crate::error::store_error;
use crate::pooling;
use crate::rows::{id, id_text, ids, millis};
use crate::statements::Statement;
use crate::taking::is_refusal;

/// Constraints speak when their statement ends, so that it is known of which rows.
const BEGIN_RECOVERY: &str = "begin isolation level read committed;
    set local lock_timeout = '1s'; set local idle_in_transaction_session_timeout = '5s';
    set constraints all immediate";

/// Which rows are taken back.
pub(crate) struct Recover<'a> {
    pub(crate) statement: &'a Statement,
    pub(crate) request: &'a RecoverRequest,
}

impl PostgresStore {
    /// Takes back all but those rows that the table refuses to change.
    pub(crate) async fn recover_stalled(&self, recover: &Recover<'_>) -> sqlx::Result<Recovered> {
        let mut recovered = Recovered::default();
        let Some(listing) = recover.statement.listing() else {
            return Ok(recovered);
        };
        // In one transaction, which keeps its locks: what another transaction has locked is left to it.
        let mut tx = pooling::begin(&self.pool, BEGIN_RECOVERY).await?;
        let listed = self.recovery(&listing, recover, None).fetch_all(&mut *tx).await?;
        let mut halving = Halving::anywhere(ids(&listed, &self.map)?, SearchDeadline::begin());
        while let Some(group) = halving.next_group() {
            let only = group
                .iter()
                .filter_map(|id: &MessageId| id_text(*id, &self.map))
                .collect();
            let mut apart = tx.begin().await?;
            let recovery = self.recovery(recover.statement, recover, Some(only));
            match recovery.fetch_all(&mut *apart).await {
                Ok(rows) => {
                    apart.commit().await?;
                    self.note_recovered(&rows, &mut recovered)?;
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

    /// Takes back all that is stalled, or only some.
    fn recovery<'q>(
        &self,
        statement: &Statement,
        recover: &Recover<'q>,
        only: Option<Vec<String>>,
    ) -> Query<'q, Postgres, PgArguments> {
        let exhausted = RowChange::exhausted(&self.map);
        in_scope(statement, &recover.request.scope, recover.request.max_attempts)
            .bind(exhausted.error)
            .bind(millis(recover.request.stalled_after))
            .bind(only)
            .bind(exhausted.attempts)
    }

    fn note_recovered(&self, rows: &[PgRow], recovered: &mut Recovered) -> sqlx::Result<()> {
        for row in rows {
            let side = if row.try_get("exhausted")? {
                &mut recovered.died
            } else {
                &mut recovered.pending
            };
            side.push(id(row, &self.map)?);
        }
        Ok(())
    }
}
