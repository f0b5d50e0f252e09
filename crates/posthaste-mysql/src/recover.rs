//! Taking back what crashed workers held, where the table says since when a row is held and not until when.

use std::time::Duration;

use posthaste_core::MessageId;
use posthaste_core::store::{Halving, RecoverRequest, Recovered, SearchDeadline};
use sqlx::{Connection, MySqlConnection, Row};

use crate::MySqlStore;
use crate::claim::{MAX_IDS, scope};
use crate::error::store_error;
use crate::rows::{id, ids, millis};
use crate::statement::Value;
use crate::statements::Needed;
use crate::taking::is_refusal;

impl MySqlStore {
    /// Rows that have attempts left are pending again, the others dead.
    pub(crate) async fn recover_once(&self, request: &RecoverRequest) -> sqlx::Result<Recovered> {
        let RecoverRequest {
            scope: wanted,
            max_attempts,
            stalled_after,
        } = request;
        let (max_attempts, stalled_after) = (*max_attempts, *stalled_after);
        // Where a row says until when it is held, a claim takes it back itself.
        let Some(since) = &self.statements.since else {
            return Ok(Recovered::default());
        };
        let mut tx = self.begin().await?;
        let mut stalled = scope(wanted, max_attempts);
        stalled.extend([millis(stalled_after).into(), Value::Number(i64::try_from(MAX_IDS).ok())]);
        let mut found = ids(&since.find_stalled.fetch_all(&mut tx, &stalled).await?, &self.map)?;
        found.sort_unstable();
        let mut recovered = Recovered::default();
        // One that the table refuses to change keeps no others.
        let mut halving = Halving::anywhere(found, SearchDeadline::begin());
        while let Some(group) = halving.next_group() {
            let mut apart = tx.begin().await?;
            match self.recover_some(&mut apart, &group, max_attempts, stalled_after).await {
                Ok(some) => {
                    apart.commit().await?;
                    recovered.pending.extend(some.pending);
                    recovered.died.extend(some.died);
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

    async fn recover_some(
        &self,
        conn: &mut MySqlConnection,
        found: &[MessageId],
        max_attempts: u32,
        stalled_after: Duration,
    ) -> sqlx::Result<Recovered> {
        let since = self.statements.since.needed()?;
        let stalled = [
            Value::ids(found, &self.map),
            max_attempts.into(),
            millis(stalled_after).into(),
        ];
        let mut recovered = Recovered::default();
        for row in since.lock_stalled.fetch_all(conn, &stalled).await? {
            let exhausted: bool = row.try_get("exhausted")?;
            let rows = if exhausted {
                &mut recovered.died
            } else {
                &mut recovered.pending
            };
            rows.push(id(&row, &self.map)?);
        }
        if !recovered.pending.is_empty() {
            let values = [Value::ids(&recovered.pending, &self.map)];
            since.release_stalled.execute(conn, &values).await?;
        }
        if !recovered.died.is_empty() {
            self.mark_dead(conn, &recovered.died).await?;
        }
        Ok(recovered)
    }
}
