//! Dead letters that were kept elsewhere, brought back. There is one writer at a time, so nothing is locked.

use posthaste_core::lifecycle::State;
use posthaste_core::outbox::EnqueueOn as _;
use posthaste_core::store::{AdminStore as _, DeadLetter, Restored};
use posthaste_core::{Enqueued, MessageId, StoreError};
use sqlx::SqliteConnection;

use crate::SqliteStore;
use crate::begin::begin;
use crate::rows::epoch_millis;

impl SqliteStore {
    pub(crate) async fn restore_letter(&self, letter: &DeadLetter) -> Result<Restored, StoreError> {
        let id = letter.message.id;
        if let Some(found) = self.show(id).await? {
            if found.state != State::Dead {
                return Ok(Restored::There(found.state));
            }
            let mut tx = begin(&self.pool).await.map_err(|error| self.error(error))?;
            let added = self.insert_restored_letter(&mut tx, id).await;
            let added = added.map_err(|error| self.error(error))?;
            tx.commit().await.map_err(|error| self.error(error))?;
            return Ok(if added {
                Restored::LetterAdded
            } else {
                Restored::There(State::Dead)
            });
        }
        let (prepared, options) = letter.prepare();
        let mut tx = begin(&self.pool).await.map_err(|error| self.error(error))?;
        let written = self.insert(&mut *tx, &prepared, &options).await?;
        let row = match written.first() {
            Some(Enqueued::Inserted(row)) => *row,
            // Written by another import in this moment, or enqueued anew.
            Some(Enqueued::Duplicate(other)) => {
                tx.rollback().await.map_err(|error| self.error(error))?;
                let found = self.show(*other).await?;
                return Ok(Restored::There(found.map_or(State::Dead, |found| found.state)));
            }
            None => return Err(StoreError::gone(id)),
        };
        let marked = self.mark_restored(&mut tx, row, letter).await;
        marked.map_err(|error| self.error(error))?;
        let added = self.insert_restored_letter(&mut tx, id).await;
        added.map_err(|error| self.error(error))?;
        tx.commit().await.map_err(|error| self.error(error))?;
        Ok(Restored::Inserted)
    }

    async fn mark_restored(
        &self,
        conn: &mut SqliteConnection,
        row: MessageId,
        letter: &DeadLetter,
    ) -> sqlx::Result<()> {
        sqlx::query(self.statements.restoring.restore.sql())
            .bind(row.to_string())
            .bind(letter.message.id.to_string())
            .bind(self.map.kept_attempts(letter.attempts))
            .bind(self.map.error_text(&letter.error))
            .bind(epoch_millis(letter.created_at))
            .bind(letter.message.dedupe_key.as_deref())
            .bind(letter.hash.map(|hash| hash.to_string()))
            .execute(conn)
            .await?;
        Ok(())
    }

    /// Returns whether the table of dead letters has it from now on.
    async fn insert_restored_letter(&self, conn: &mut SqliteConnection, id: MessageId) -> sqlx::Result<bool> {
        let Some(letters) = &self.statements.restoring_letters else {
            return Ok(false);
        };
        let query = sqlx::query(letters.restore_dead_letter.sql()).bind(id.to_string());
        Ok(query.execute(conn).await?.rows_affected() > 0)
    }
}
