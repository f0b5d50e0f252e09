//! Dead letters that were kept elsewhere, brought back.

use posthaste_core::lifecycle::State;
use posthaste_core::store::{AdminStore as _, DeadLetter, Restored};
use posthaste_core::{Enqueued, MessageId, StoreError};
use posthaste_sql::enqueue::hex;
use posthaste_sql::table::{Kind, Role};
use sqlx::PgConnection;

use crate::PostgresStore;
use crate::error::store_error;
use crate::rows::id_text;

impl PostgresStore {
    pub(crate) async fn restore_letter(&self, letter: &DeadLetter) -> Result<Restored, StoreError> {
        let id = letter.message.id;
        if let Some(found) = self.show(id).await? {
            return self.add_letter(id, found.state).await;
        }
        let (prepared, options) = letter.prepare();
        let mut tx = self.begin().await.map_err(store_error)?;
        let kept = self.sessions.keep_statements();
        let written = self.enqueue.run(&mut *tx, &prepared, &options, kept).await?;
        let row = match written.first() {
            Some(Enqueued::Inserted(row)) => *row,
            // Written by another import in this moment, or enqueued anew.
            Some(Enqueued::Duplicate(other)) => {
                tx.rollback().await.map_err(store_error)?;
                let found = self.show(*other).await?;
                return Ok(Restored::There(found.map_or(State::Dead, |found| found.state)));
            }
            None => return Err(StoreError::gone(id)),
        };
        self.mark_restored(&mut tx, row, letter).await.map_err(store_error)?;
        self.insert_restored_letter(&mut tx, id).await.map_err(store_error)?;
        tx.commit().await.map_err(store_error)?;
        Ok(Restored::Inserted)
    }

    /// Gives a dead row its letter, where there is a table for that and it has none.
    async fn add_letter(&self, id: MessageId, state: State) -> Result<Restored, StoreError> {
        if state != State::Dead || self.statements.restoring_letters.is_none() {
            return Ok(Restored::There(state));
        }
        let mut tx = self.begin().await.map_err(store_error)?;
        let lock = self.statements.restoring.lock_dead.query().bind(id_text(id, &self.map));
        let locked = lock.fetch_optional(&mut *tx).await.map_err(store_error)?;
        let added = locked.is_some() && self.insert_restored_letter(&mut tx, id).await.map_err(store_error)?;
        tx.commit().await.map_err(store_error)?;
        Ok(if added {
            Restored::LetterAdded
        } else {
            Restored::There(state)
        })
    }

    async fn mark_restored(&self, conn: &mut PgConnection, row: MessageId, letter: &DeadLetter) -> sqlx::Result<()> {
        let is_bytes = self.map.column(Role::ContentHash).map(|column| column.kind) == Some(Kind::Bytes);
        let hash = letter.hash.map(|hash| {
            if is_bytes {
                hex(hash.as_bytes())
            } else {
                hash.to_string()
            }
        });
        let query = self.statements.restoring.restore.query();
        query
            .bind(id_text(row, &self.map))
            .bind(id_text(letter.message.id, &self.map))
            .bind(self.map.kept_attempts(letter.attempts))
            .bind(self.map.error_text(&letter.error))
            .bind(letter.created_at)
            .bind(letter.message.dedupe_key.as_deref())
            .bind(hash)
            .execute(conn)
            .await?;
        Ok(())
    }

    /// Returns whether the table of dead letters has it from now on.
    async fn insert_restored_letter(&self, conn: &mut PgConnection, id: MessageId) -> sqlx::Result<bool> {
        let Some(letters) = &self.statements.restoring_letters else {
            return Ok(false);
        };
        let query = letters.restore_dead_letter.query().bind(id_text(id, &self.map));
        Ok(query.execute(conn).await?.rows_affected() > 0)
    }
}
