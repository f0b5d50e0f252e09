//! What waits in a log that nobody reads, for the relays of the queue beside it.

use posthaste_core::StoreError;
use posthaste_core::store::{GAUGE_BOUND, OutboxStats};
use posthaste_sql::table::Identifier;
use sqlx::{AssertSqlSafe, PgPool, Row};

use super::LogTables;
use super::seats::{self, SCHEMA_IN_FILES};
use crate::error::store_error;

/// What is to be delivered from a schema's log, as long as nobody reads it. Counted up to a bound.
pub(crate) async fn unread(pool: &PgPool, schema: &Identifier) -> Result<OutboxStats, StoreError> {
    let tables = LogTables::in_schema(pool.clone(), schema.as_str())?;
    let unread = include_str!("../../queries/log/shards/unread.sql").replace(SCHEMA_IN_FILES, &schema.quoted('"'));
    let mut tx = seats::begin_look(pool).await?;
    let counted = async {
        // A queue's pool may be that of a pooler.
        let first = sqlx::query(tables.first_segment_query())
            .persistent(false)
            .bind(true)
            .fetch_one(&mut *tx)
            .await?;
        let row = sqlx::query(AssertSqlSafe(unread))
            .persistent(false)
            .bind(first.try_get::<i64, _>("first")?)
            .bind(i64::from(GAUGE_BOUND) + 1)
            .fetch_one(&mut *tx)
            .await?;
        Ok(OutboxStats {
            pending: row.try_get::<i64, _>("pending")?.cast_unsigned(),
            waiting: row.try_get::<i64, _>("waiting")?.cast_unsigned(),
            oldest_seconds: row.try_get::<f64, _>("oldest_seconds")?.max(0.0),
            ..OutboxStats::default()
        })
    };
    let counted = counted.await.map_err(store_error)?;
    tx.rollback().await.map_err(store_error)?;
    Ok(counted)
}
