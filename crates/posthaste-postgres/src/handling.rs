//! The transaction of a handler, from its beginning to a commit that is one.
//!
//! PostgreSQL answers `COMMIT` of a transaction that an error has aborted with success and a rollback. So the inboxes set
//! a savepoint before the handler and release it before the commit, which an aborted transaction refuses.

use posthaste_core::{Mark, StoreError};
use posthaste_sql::savepoint;
use sqlx::{AssertSqlSafe, Executor, PgConnection, PgPool, Postgres, Transaction};

use crate::error::store_error;
use crate::pooling;

pub(crate) async fn begin(pool: &PgPool) -> Result<Transaction<'static, Postgres>, StoreError> {
    // Both in one message, so that the mark costs no round trip. Under a stricter default of the database two deliveries of
    // the same event would fail with errors of serialisation in place of waiting for each other.
    let begin = format!("{}; {}", crate::BEGIN, savepoint::set(Mark::BEGIN));
    pooling::begin(pool, AssertSqlSafe(begin)).await.map_err(store_error)
}

pub(crate) async fn commit(mut tx: Transaction<'static, Postgres>) -> Result<(), StoreError> {
    prove_mark(&mut tx, Mark::BEGIN).await?;
    tx.commit().await.map_err(store_error)
}

pub(crate) async fn set_mark(tx: &mut PgConnection, mark: Mark) -> Result<(), StoreError> {
    let set = tx.execute(AssertSqlSafe(savepoint::set(mark)));
    set.await.map(drop).map_err(store_error)
}

pub(crate) async fn prove_mark(tx: &mut PgConnection, mark: Mark) -> Result<(), StoreError> {
    match tx.execute(AssertSqlSafe(savepoint::release(mark))).await {
        Ok(_) => Ok(()),
        Err(error) if is_lost(&error) => Err(Mark::lost(store_error(error))),
        Err(error) => Err(store_error(error)),
    }
}

/// The transaction is aborted, there is none, or it is another one.
fn is_lost(error: &sqlx::Error) -> bool {
    let sqlx::Error::Database(error) = error else {
        return false;
    };
    matches!(error.code().as_deref(), Some("25P02" | "25P01" | "3B001"))
}
