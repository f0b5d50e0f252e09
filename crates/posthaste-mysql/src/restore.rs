//! Dead letters that were kept elsewhere, brought back.

use posthaste_core::lifecycle::State;
use posthaste_core::outbox::EnqueueOn as _;
use posthaste_core::store::{AdminStore as _, DeadLetter, Restored};
use posthaste_core::{Enqueued, MessageId, StoreError};
use posthaste_sql::table::{Kind, Role};
use sqlx::MySqlConnection;

use crate::MySqlStore;
use crate::error::store_error;
use crate::retry::retrying;
use crate::statement::{Value, epoch_micros};

impl MySqlStore {
    pub(crate) async fn restore_letter(&self, letter: &DeadLetter) -> Result<Restored, StoreError> {
        let id = letter.message.id;
        if let Some(found) = self.show(id).await? {
            return retrying!(self.add_letter(id, found.state)).map_err(store_error);
        }
        let (prepared, options) = letter.prepare();
        let mut tx = self.begin_transaction().await?;
        let written = self.insert(&mut *tx, &prepared, &options).await?;
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
    async fn add_letter(&self, id: MessageId, state: State) -> sqlx::Result<Restored> {
        if state != State::Dead || self.statements.restoring_letters.is_none() {
            return Ok(Restored::There(state));
        }
        let mut tx = self.begin().await?;
        let values = [Value::ids(&[id], &self.map)];
        let locked = self.statements.common.lock_dead.fetch_all(&mut tx, &values).await?;
        let added = !locked.is_empty() && self.insert_restored_letter(&mut tx, id).await?;
        tx.commit().await?;
        Ok(if added {
            Restored::LetterAdded
        } else {
            Restored::There(state)
        })
    }

    async fn mark_restored(&self, conn: &mut MySqlConnection, row: MessageId, letter: &DeadLetter) -> sqlx::Result<()> {
        let is_bytes = self.map.column(Role::ContentHash).map(|column| column.kind) == Some(Kind::Bytes);
        let hash = match letter.hash {
            Some(hash) if is_bytes => Value::Bytes(hash.as_bytes().to_vec()),
            hash => Value::Text(hash.map(|hash| hash.to_string())),
        };
        let values = [
            Value::id(row, &self.map),
            Value::id(letter.message.id, &self.map),
            i64::from(self.map.kept_attempts(letter.attempts)).into(),
            self.map.error_text(&letter.error).into(),
            epoch_micros(letter.created_at).into(),
            Value::optional(letter.message.dedupe_key.as_deref()),
            hash,
        ];
        self.statements.restoring.restore.execute(conn, &values).await?;
        Ok(())
    }

    /// Returns whether the table of dead letters has it from now on.
    async fn insert_restored_letter(&self, conn: &mut MySqlConnection, id: MessageId) -> sqlx::Result<bool> {
        let Some(letters) = &self.statements.restoring_letters else {
            return Ok(false);
        };
        let values = [Value::id(id, &self.map)];
        Ok(letters.restore_dead_letter.execute(conn, &values).await? > 0)
    }
}
