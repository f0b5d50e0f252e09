//! Moving an outbox from the queue to the log, both in one schema, without loss and without changing the order of a key.
//!
//! A row is in one of the two at any time, and rows are moved in their order. So the move can be cut short anywhere and gone on
//! with later, and producers may write all the while: first relays are kept from claiming, then batches are moved while
//! producers still write to the queue, and at last, with producers locked out for a moment, what is left. From then on what
//! is written to the queue is redirected.

use posthaste_core::StoreError;
use posthaste_core::store::StoreErrorKind;
pub use posthaste_sql::log::{MovePlan, Unfit};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Postgres, Row, Transaction};

use super::{LogTables, Moving as Queries, by_owner};
use crate::error::store_error;

/// How a step begins that locks the queue. A lock is waited for a little longer than the server takes to end an autovacuum that is
/// in the way: this step would give up at that very moment, and so would each that follows.
const BEGIN_STEP: &str = "begin isolation level read committed; set local idle_in_transaction_session_timeout = '5s';
    select set_config('lock_timeout', (least(setting::integer, 2000) + 250)::text, true)
    from pg_settings where name = 'deadlock_timeout'";

/// How often it is tried to take a fence back that was put up a moment ago.
const TAKE_BACK_TRIES: u32 = 10;

/// Rows of a batch wait for nobody, for relays hold none of them.
const BEGIN_BATCH: &str = "begin isolation level read committed; set local lock_timeout = '5s'";

/// The SQLSTATE of what the functions of a move refuse.
const NOT_READY: &str = "55000";

const QUEUE_USERS: &str = include_str!("../../../queries/log/tables/queue_users.sql");
const WHO_MOVES: &str = include_str!("../../../queries/log/tables/who_moves.sql");

/// What can be done about messages that are too long for the log.
const SHORTEN: &str = "deliver them with layout = \"queue\" (if a move was begun, after `posthaste log move --abort`), discard those that \
                       are dead, or shorten that field, for which docs/log-layout.md has the statement; then move again";

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

    /// How far it has come. Changes nothing, and may be asked through any pooler.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn progress(&self) -> Result<MoveProgress, StoreError> {
        let mut tx = self.tables.begin_bounded().await?;
        let asked = sqlx::query(self.queries.move_progress.sql())
            .persistent(false)
            .fetch_one(&mut *tx)
            .await;
        let row = asked.map_err(store_error)?;
        let is = |name: &str| row.try_get::<bool, _>(name).map_err(store_error);
        Ok(match (is("is_redirected")?, is("is_fenced")?) {
            (true, _) => MoveProgress::Done,
            (false, true) => MoveProgress::Begun,
            (false, false) => MoveProgress::NotBegun,
        })
    }

    /// The messages that the log does not take. Changes nothing.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn unfit(&self) -> Result<Unfit, StoreError> {
        let mut connection = self.tables.pool.acquire().await.map_err(store_error)?;
        self.find_unfit(&mut connection).await
    }

    /// Refuses to go on with messages that the log does not take.
    ///
    /// # Errors
    /// If there are some, with their ids and what is to be done about them.
    pub async fn refuse_unfit(&self) -> Result<(), StoreError> {
        self.unfit().await?.refuse(SHORTEN)
    }

    async fn find_unfit(&self, connection: &mut PgConnection) -> Result<Unfit, StoreError> {
        let rows = sqlx::query(self.queries.unfit.sql())
            .bind(i64::from(Unfit::MAX_EXAMPLES))
            .fetch_all(connection)
            .await
            .map_err(store_error)?;
        let count = rows.first().map_or(Ok(0), |row| row.try_get::<i64, _>("unfit"));
        let examples = rows.iter().map(example).collect::<sqlx::Result<_>>();
        Ok(Unfit {
            count: count.map_err(store_error)?.cast_unsigned(),
            examples: examples.map_err(store_error)?,
        })
    }

    /// Keeps relays of the queue from claiming, from now on; what they have claimed they may settle. Says whether a lock was
    /// in the way, and it is to be tried again.
    ///
    /// # Errors
    /// Those of the database, and that there are messages which the log does not take. Nothing was changed then, unless the move had
    /// begun before.
    pub async fn fence(&self) -> Result<MoveStep<()>, StoreError> {
        let mut tx = self.begin(BEGIN_STEP).await?;
        let fenced = sqlx::query_scalar(self.queries.fence_queue.sql())
            .fetch_one(&mut *tx)
            .await
            .map_err(by_owner);
        let MoveStep::Done(is_new) = MoveStep::of(end(tx, fenced).await)? else {
            return Ok(MoveStep::Busy);
        };
        // Whoever was writing has ended, and what is written from now on is refused if it does not fit. Producers go on meanwhile:
        // it takes a look at every message.
        match self.refuse_unfit().await {
            Err(error) if is_new => Err(self.take_back(error).await),
            refused => refused.map(MoveStep::Done),
        }
    }

    /// Takes back the fence that was put up for nothing; returns why it was for nothing.
    async fn take_back(&self, why: StoreError) -> StoreError {
        for _ in 0..TAKE_BACK_TRIES {
            if let Ok(MoveStep::Done(_)) = self.unfence().await {
                return why;
            }
        }
        StoreError {
            message: format!(
                "{} (and relays of the queue claim nothing until `posthaste log move --abort`)",
                why.message
            ),
            ..why
        }
    }

    /// Takes back [`QueueMove::fence`]: relays of the queue may claim again. Says whether there was something to take back.
    ///
    /// # Errors
    /// Those of the database, which refuses it while messages wait in the log, and once the move is through. Nothing was changed
    /// then.
    pub async fn unfence(&self) -> Result<MoveStep<bool>, StoreError> {
        let mut tx = self.begin(BEGIN_STEP).await?;
        let unfenced = sqlx::query_scalar(self.queries.unfence_queue.sql())
            .fetch_one(&mut *tx)
            .await
            .map_err(by_owner);
        MoveStep::of(end(tx, unfenced).await)
    }

    /// Moves the oldest messages, about so many; says how many it moved.
    ///
    /// # Errors
    /// Those of the database, which refuses it unless relays are kept from claiming. Nothing of the batch was moved then.
    pub async fn move_batch(&self, limit: u32) -> Result<u64, StoreError> {
        let mut tx = self.begin(BEGIN_BATCH).await?;
        let moved = sqlx::query_scalar(self.queries.move_batch.sql())
            .bind(i32::try_from(limit).unwrap_or(i32::MAX))
            .fetch_one(&mut *tx)
            .await
            .map_err(of_move);
        end(tx, moved).await.map(i64::cast_unsigned)
    }

    /// Moves what is left, with producers locked out, and redirects them; says how many it moved. A producer whose transaction
    /// is open is waited for, for a second at most.
    ///
    /// # Errors
    /// Those of the database, which refuses it unless relays are kept from claiming, and have nothing claimed. Nothing was changed
    /// then.
    pub async fn redirect(&self) -> Result<MoveStep<u64>, StoreError> {
        let mut tx = self.begin(BEGIN_STEP).await?;
        let moved = sqlx::query_scalar(self.queries.redirect_queue.sql())
            .fetch_one(&mut *tx)
            .await
            .map_err(of_move);
        MoveStep::of(end(tx, moved).await.map(i64::cast_unsigned))
    }

    /// The oldest of the transactions that keep [`QueueMove::fence`] and [`QueueMove::redirect`] waiting, with what ends them; with
    /// those that only read, which keep [`QueueMove::unfence`] waiting. Changes nothing.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn in_the_way(&self, with_readers: bool) -> Result<Vec<String>, StoreError> {
        sqlx::query_scalar(QUEUE_USERS)
            .bind(format!("{}.outbox", self.tables.schema))
            .bind(with_readers)
            .fetch_all(&self.tables.pool)
            .await
            .map_err(store_error)
    }

    /// A transaction in which no other move of this queue is at work: the two would lock each other out.
    async fn begin(&self, how: &'static str) -> Result<Transaction<'static, Postgres>, StoreError> {
        let mut tx = self.tables.begin(how).await?;
        let locked: bool = sqlx::query_scalar(self.queries.lock_move.sql())
            .fetch_one(&mut *tx)
            .await
            .map_err(store_error)?;
        if locked {
            return Ok(tx);
        }
        let other = sqlx::query_scalar(WHO_MOVES)
            .bind(&self.tables.schema)
            .fetch_optional(&mut *tx)
            .await
            .map_err(store_error)?;
        Err(another_is_at_work(other))
    }
}

/// Ends a step. One that failed is rolled back before it is reported: its lock would be in the way of the next one.
async fn end<T>(tx: Transaction<'_, Postgres>, done: Result<T, StoreError>) -> Result<T, StoreError> {
    match done {
        Ok(done) => tx.commit().await.map(|()| done).map_err(by_owner),
        Err(error) => {
            // What the step failed by says more.
            let _ = tx.rollback().await;
            Err(error)
        }
    }
}

/// The error of a step that relies on those before it, which another command may have taken back.
fn of_move(error: sqlx::Error) -> StoreError {
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
    let is_taken_back = code.as_deref() == Some(NOT_READY);
    let error = by_owner(error);
    if !is_taken_back {
        return error;
    }
    StoreError {
        remedy: Some("run `posthaste log move` again if the queue shall be moved"),
        ..error
    }
}

/// What is wrong with a row.
fn example(row: &PgRow) -> sqlx::Result<String> {
    let (id, field): (String, String) = (row.try_get("id")?, row.try_get("field")?);
    let (bytes, allowed): (i32, i32) = (row.try_get("bytes")?, row.try_get("allowed")?);
    Ok(format!("{id} ({field} has {bytes} bytes and may have {allowed})"))
}

/// One that was at work when it was asked for its lock may have ended since.
fn another_is_at_work(who: Option<String>) -> StoreError {
    let who = who.map(|who| format!(": {who}")).unwrap_or_default();
    StoreError {
        kind: StoreErrorKind::Contention,
        message: format!("another `posthaste log move` is at work on this queue{who}"),
        remedy: Some("let it go on, or run it again when that one has ended"),
        source: None,
    }
}

/// How far a move has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveProgress {
    /// Relays of the queue may claim.
    NotBegun,
    /// They may not, and messages are moved.
    Begun,
    /// What is written to the queue goes to the log.
    Done,
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
    fn of(done: Result<T, StoreError>) -> Result<Self, StoreError> {
        match done {
            Ok(done) => Ok(Self::Done(done)),
            Err(error) if error.kind == StoreErrorKind::Contention => Ok(Self::Busy),
            Err(error) => Err(error),
        }
    }
}
