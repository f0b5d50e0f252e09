//! Dead letters that were kept elsewhere, brought back.

use posthaste_core::StoreError;
use posthaste_core::lifecycle::State;
use posthaste_core::store::{AdminStore as _, DeadLetter, Restored};
use sqlx::Postgres;
use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use uuid::Uuid;

use super::PostgresLogStore;
use crate::columns::{header_text, stored_content_type};
use crate::error::store_error;

impl PostgresLogStore {
    pub(super) async fn restore_letter(&self, letter: &DeadLetter) -> Result<Restored, StoreError> {
        let message = &letter.message;
        let event = message.effective_event_id().parse::<Uuid>().ok();
        let id = event.map_or(message.id, Into::into);
        if let Some(found) = self.show(id).await? {
            return Ok(Restored::There(found.state));
        }
        let (Some(restoring), Some(event)) = (&self.log.statements.restoring, event) else {
            return Err(StoreError::unsupported(
                "rows cannot be put back into this outbox, and this one is gone",
                Some("enqueue its message anew"),
            ));
        };
        let query = sqlx::query(restoring.restore.sql())
            .bind(event)
            .bind(message.topic.as_str())
            .bind(message.ordering_key.as_deref())
            .bind(message.tenant.as_deref())
            .bind(message.event_type.as_deref())
            .bind(message.source.as_deref())
            .bind(message.aggregate_type.as_deref())
            .bind(message.aggregate_id.as_deref())
            .bind(stored_content_type(message))
            .bind(message.payload.as_ref())
            .bind(header_text(message))
            .bind(i32::try_from(letter.attempts).unwrap_or(i32::MAX))
            .bind(self.log.map.error_text(&letter.error))
            .bind(letter.created_at);
        if self.insert_once(event, query).await.map_err(store_error)? {
            return Ok(Restored::Inserted);
        }
        // Another import was quicker.
        let found = self.show(id).await?;
        Ok(Restored::There(found.map_or(State::Dead, |found| found.state)))
    }

    /// Of several imports of one event, such as from copies of a file, one inserts it.
    async fn insert_once(&self, event: Uuid, insert: Query<'_, Postgres, PgArguments>) -> sqlx::Result<bool> {
        let mut tx = self.log.begin_bounded().await?;
        sqlx::query("select pg_advisory_xact_lock(hashtextextended('posthaste:restore:' || $1::uuid::text, 0))")
            .bind(event)
            .execute(&mut *tx)
            .await?;
        let inserted = insert.execute(&mut *tx).await?.rows_affected() > 0;
        tx.commit().await?;
        Ok(inserted)
    }
}
