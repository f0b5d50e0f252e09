//! Locks on the whole table, such as `create index`, `alter table` and `lock table` take.
//!
//! A statement asks for its table before any part of it runs, so how long it waits has to be said in its transaction before.

use posthaste_core::StoreError;
use posthaste_core::store::StoreErrorKind;
use posthaste_sql::TableMap;
use posthaste_sql::table::Table;
use sqlx::{PgConnection, Row};

use crate::PostgresStore;
use crate::error::store_error;

/// How a transaction begins that waits for locks for a moment only. Its own locks do not outlive a relay that is frozen or
/// unreachable before it commits: others would pass over the rows without a word.
pub(crate) const BEGIN_BRIEF: &str = "begin isolation level read committed; set local lock_timeout = '250ms';
    set local idle_in_transaction_session_timeout = '5s'";

/// How others begin. They do not wait for a lock that may be held for hours.
pub(crate) const BEGIN_BOUNDED: &str = "begin isolation level read committed; set local lock_timeout = '1s';
    set local idle_in_transaction_session_timeout = '5s'";

/// So long.
pub(crate) const LOCK_TIMEOUT: &str = "1s";

const REMEDY: &str = "wait until that session is through, or end it with `select pg_terminate_backend(…)`; `create index \
                      concurrently` locks nobody out";

/// Who has locked one of these tables of the map as a whole, in words for an operator.
pub(crate) async fn find_table_lock(conn: &mut PgConnection, map: &TableMap, tables: &[Table]) -> Option<String> {
    let tables = tables.iter().filter_map(|table| Some(map.table(*table)?.quoted('"')));
    let query = sqlx::query(include_str!("../queries/catalogue/table_locks.sql"))
        .persistent(false)
        .bind(tables.collect::<Vec<_>>());
    let found = query.fetch_optional(conn).await;
    let holder = found.and_then(|row| row.map(|row| row.try_get("holder")).transpose());
    holder.unwrap_or_else(|error| {
        tracing::debug!(%error, "who has locked the table could not be found");
        None
    })
}

impl PostgresStore {
    pub(crate) async fn find_table_lock(&self) -> Option<String> {
        let mut tx = self.begin().await.ok()?;
        let holder = find_table_lock(&mut tx, &self.map, &[Table::Outbox, Table::DeadLetter]).await;
        tx.rollback().await.ok()?;
        holder
    }

    /// What an error means. If another transaction has locked the whole table, that is all there is to say.
    pub(crate) async fn explain(&self, error: sqlx::Error) -> StoreError {
        let error = store_error(error);
        if error.kind != StoreErrorKind::Contention {
            return error;
        }
        match self.find_table_lock().await {
            Some(holder) => StoreError {
                message: format!("PostgreSQL: {holder}"),
                remedy: Some(REMEDY),
                ..error
            },
            None => error,
        }
    }
}
