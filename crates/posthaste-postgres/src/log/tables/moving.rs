//! Moving an outbox from the queue to the log, both in one schema, without loss and without changing the order of a key.
//!
//! A row is in one of the two at any time, and rows are moved in their order. So the move can be cut short anywhere and gone on
//! with later, and producers may write all the while: first relays are kept from claiming, then batches are moved while
//! producers still write to the queue, and at last, with producers locked out for a moment, what is left. From then on what
//! is written to the queue is redirected.

use posthaste_core::StoreError;
use posthaste_core::store::StoreErrorKind;
pub use posthaste_sql::log::MovePlan;
use sqlx::Row;

use super::{LogTables, Moving as Queries};
use crate::error::store_error;

/// Rows of a batch wait for nobody, for relays hold none of them.
const BEGIN_BATCH: &str = "begin isolation level read committed; set local lock_timeout = '5s'";

/// The steps of a move, in the order in which they are to be taken. Each may be repeated.
#[derive(Clone, Copy, Debug)]
pub struct QueueMove<'a> {
    tables: &'a LogTables,
    queries: &'a Queries,
}

impl LogTables {
    /// What moves the queue of the same schema into this log.
    pub fn queue_move(&self) -> QueueMove<'_> {
        QueueMove {
            tables: self,
            queries: &self.statements.moving,
        }
    }
}

impl QueueMove<'_> {
    /// What is to be done. Changes nothing.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn plan(&self) -> Result<MovePlan, StoreError> {
        let row = sqlx::query(self.queries.move_plan.sql())
            .fetch_one(&self.tables.pool)
            .await
            .map_err(store_error)?;
        let count = |name: &str| row.try_get::<i64, _>(name).map(i64::cast_unsigned).map_err(store_error);
        Ok(MovePlan {
            pending: count("pending")?,
            waiting: count("waiting")?,
            dead: count("dead")?,
            processing: count("processing")?,
            leased: count("leased")?,
            relays: count("relays")?,
            is_fenced: row.try_get("is_fenced").map_err(store_error)?,
            is_redirected: row.try_get("is_redirected").map_err(store_error)?,
        })
    }

    /// Keeps relays of the queue from claiming, from now on; what they have claimed they may settle. Says whether a lock was
    /// in the way, and it is to be tried again.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn fence(&self) -> Result<MoveStep<()>, StoreError> {
        let mut tx = self.tables.begin_bounded().await?;
        let fenced = sqlx::query(self.queries.fence_queue.sql()).execute(&mut *tx).await;
        let fenced = match fenced {
            Ok(_) => tx.commit().await,
            Err(error) => Err(error),
        };
        MoveStep::of(fenced)
    }

    /// Moves the oldest messages, about so many; says how many it moved.
    ///
    /// # Errors
    /// Those of the database. Nothing of the batch was moved then.
    pub async fn move_batch(&self, limit: u32) -> Result<u64, StoreError> {
        let mut tx = self.tables.begin(BEGIN_BATCH).await?;
        let moved: i64 = sqlx::query_scalar(self.queries.move_batch.sql())
            .bind(i32::try_from(limit).unwrap_or(i32::MAX))
            .fetch_one(&mut *tx)
            .await
            .map_err(store_error)?;
        tx.commit().await.map_err(store_error)?;
        Ok(moved.cast_unsigned())
    }

    /// Moves what is left, with producers locked out, and redirects them; says how many it moved. A producer whose transaction
    /// is open is waited for, for a second at most.
    ///
    /// # Errors
    /// Those of the database. Nothing was changed then.
    pub async fn redirect(&self) -> Result<MoveStep<u64>, StoreError> {
        let mut tx = self.tables.begin_bounded().await?;
        let moved = sqlx::query_scalar::<_, i64>(self.queries.redirect_queue.sql())
            .fetch_one(&mut *tx)
            .await;
        let moved = match moved {
            Ok(moved) => tx.commit().await.map(|()| moved.cast_unsigned()),
            Err(error) => Err(error),
        };
        MoveStep::of(moved)
    }
}

/// How a step that needs a lock ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveStep<T> {
    /// It was done.
    Done(T),
    /// A transaction was in the way. Nothing was done; it may be tried again.
    Busy,
}

impl<T> MoveStep<T> {
    fn of(done: sqlx::Result<T>) -> Result<Self, StoreError> {
        match done.map_err(store_error) {
            Ok(done) => Ok(Self::Done(done)),
            Err(error) if error.kind == StoreErrorKind::Contention => Ok(Self::Busy),
            Err(error) => Err(error),
        }
    }
}
