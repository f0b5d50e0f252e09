//! Moving an outbox from the queue to the log of the same file, without loss and without changing the order of a key.
//!
//! There is one writer at a time, so all of it is one transaction.

use posthaste_core::StoreError;
use posthaste_sql::log::{MovePlan, Unfit};
use posthaste_sql::table::Table;
use sqlx::sqlite::SqliteRow;
use sqlx::{Row, SqliteConnection};

use super::{Inner, SqliteLogStore};
use crate::begin::begin;
use crate::statements::Statement;

const PLAN: &str = include_str!("../../queries/log/moving/plan.sql");
const UNFIT: &str = include_str!("../../queries/log/moving/unfit.sql");
const WAITING: &str = include_str!("../../queries/log/moving/waiting.sql");
const FRESH: &str = include_str!("../../queries/log/moving/fresh.sql");
const REMOVE: &str = include_str!("../../queries/log/moving/remove.sql");

/// What can be done about rows whose id the log does not take.
const RENAME: &str =
    "write their ids as text, for which docs/log-layout.md has the statement, or delete them; then move again";

impl SqliteLogStore {
    /// What of the queue would be moved, and what stands in the way. Changes nothing.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn move_plan(&self) -> Result<MovePlan, StoreError> {
        let planned = async {
            let mut conn = self.pool().acquire().await?;
            self.inner.move_plan(&mut conn).await
        };
        planned.await.map_err(|error| self.inner.error(error))
    }

    /// The messages that the log does not take: those whose id is no text. Changes nothing.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn unfit_to_move(&self) -> Result<Unfit, StoreError> {
        let found = async {
            let mut conn = self.pool().acquire().await?;
            self.inner.find_unfit(&mut conn).await
        };
        found.await.map_err(|error| self.inner.error(error))
    }

    /// Moves all messages of the queue; says how many. What the log has already by its id was enqueued twice, and is not delivered
    /// once more. Nothing is moved while relays hold some of them, which [`MovePlan::leased`]
    /// tells.
    ///
    /// # Errors
    /// Those of the database, and that there are messages which the log does not take. Nothing was moved then.
    pub async fn move_queue(&self) -> Result<Option<u64>, StoreError> {
        self.unfit_to_move().await?.refuse(RENAME)?;
        let moved = self.inner.move_queue().await;
        moved.map_err(|error| self.inner.error(error))
    }
}

impl Inner {
    /// A statement that names the queue as well, which the log's map does not.
    fn moving(&self, sql: &str) -> Statement {
        let queue = self.common.map().table(Table::Outbox);
        let queue = queue.map(|queue| queue.quoted('"')).unwrap_or_default();
        Statement::finish(&sql.replace("\"@queue\"", &queue), &self.map).expect("the log's map has every other table")
    }

    async fn move_plan(&self, conn: &mut SqliteConnection) -> sqlx::Result<MovePlan> {
        let row = sqlx::query(self.moving(PLAN).sql()).fetch_one(conn).await?;
        let count = |name: &str| row.try_get::<i64, _>(name).map(i64::cast_unsigned);
        Ok(MovePlan {
            pending: count("pending")?,
            waiting: count("waiting")?,
            dead: count("dead")?,
            processing: count("processing")?,
            leased: count("leased")?,
            relays: count("relays")?,
            is_fenced: false,
            is_redirected: false,
        })
    }

    async fn find_unfit(&self, conn: &mut SqliteConnection) -> sqlx::Result<Unfit> {
        let rows = sqlx::query(self.moving(UNFIT).sql())
            .bind(Unfit::MAX_EXAMPLES)
            .fetch_all(conn)
            .await?;
        let count = rows.first().map_or(Ok(0), |row| row.try_get::<i64, _>("unfit"))?;
        let example = |row: &SqliteRow| {
            let (seq, id, kind): (i64, String, String) =
                (row.try_get("seq")?, row.try_get("id")?, row.try_get("kind")?);
            Ok(format!("seq {seq} (its id {id} is {kind}, not text)"))
        };
        Ok(Unfit {
            count: count.cast_unsigned(),
            examples: rows.iter().map(example).collect::<sqlx::Result<_>>()?,
        })
    }

    async fn move_queue(&self) -> sqlx::Result<Option<u64>> {
        let mut tx = begin(self.common.pool()).await?;
        if self.move_plan(&mut tx).await?.leased > 0 {
            return Ok(None);
        }
        // The same for both statements: a message must not be of both kinds, or of none.
        let now = chrono::Utc::now().timestamp_millis();
        let waiting = sqlx::query(self.moving(WAITING).sql())
            .bind(now)
            .bind(&self.table)
            .execute(&mut *tx)
            .await?;
        let fresh = sqlx::query(self.moving(FRESH).sql())
            .bind(now)
            .execute(&mut *tx)
            .await?;
        let moved = sqlx::query(self.moving(REMOVE).sql()).execute(&mut *tx).await?;
        tx.commit().await?;
        let written = waiting.rows_affected() + fresh.rows_affected();
        let duplicates = moved.rows_affected().saturating_sub(written);
        if duplicates > 0 {
            tracing::warn!(
                duplicates,
                "messages of the queue were in the log already, by their ids: they were enqueued twice, and are not delivered once more"
            );
        }
        Ok(Some(moved.rows_affected()))
    }
}
