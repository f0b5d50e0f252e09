//! From rows to the core's types.

use std::time::Duration;

use chrono::{DateTime, Utc};
use posthaste_core::MessageId;
use posthaste_core::store::{ClaimedMessage, Record};
use posthaste_sql::table::{RawRow, TableMap};
use sqlx::Row;
use sqlx::mysql::MySqlRow;

/// A hundred years: longer than anybody means, and far from where a `DATETIME` ends.
const FOREVER_MS: i64 = 100 * 365 * 24 * 3_600 * 1_000;

/// Milliseconds as SQL takes them.
pub(crate) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).map_or(FOREVER_MS, |millis| millis.min(FOREVER_MS))
}

pub(crate) fn undecodable(column: &str, reason: String) -> sqlx::Error {
    sqlx::Error::ColumnDecode {
        index: column.to_owned(),
        source: reason.into(),
    }
}

pub(crate) fn id(row: &MySqlRow, map: &TableMap) -> sqlx::Result<MessageId> {
    Ok(map.id(&row.try_get::<String, _>("id")?))
}

pub(crate) fn ids(rows: &[MySqlRow], map: &TableMap) -> sqlx::Result<Vec<MessageId>> {
    rows.iter().map(|row| id(row, map)).collect()
}

fn raw(row: &MySqlRow) -> sqlx::Result<RawRow> {
    Ok(RawRow {
        id: row.try_get("id")?,
        event_id: row.try_get("event_id")?,
        namespace: row.try_get("namespace")?,
        topic: row.try_get("topic")?,
        ordering_key: row.try_get("ordering_key")?,
        tenant: row.try_get("tenant")?,
        dedupe_key: row.try_get("dedupe_key")?,
        event_type: row.try_get("event_type")?,
        source: row.try_get("source")?,
        aggregate_type: row.try_get("aggregate_type")?,
        aggregate_id: row.try_get("aggregate_id")?,
        content_type: row.try_get("content_type")?,
        payload: row.try_get("payload")?,
        headers: row.try_get("headers")?,
        content_hash: row.try_get("content_hash")?,
        attempts: row.try_get::<Option<i64>, _>("attempts")?.unwrap_or(0),
        max_attempts: row.try_get("max_attempts")?,
        version: row.try_get("version")?,
        created_at: row.try_get::<Option<_>, _>("created_at")?.unwrap_or_default(),
    })
}

pub(crate) fn claimed(row: &MySqlRow, map: &TableMap) -> sqlx::Result<ClaimedMessage> {
    Ok(map.claimed(&raw(row)?))
}

pub(crate) fn record(row: &MySqlRow, map: &TableMap) -> sqlx::Result<Record> {
    let word: String = row.try_get("status")?;
    let state = map
        .state(&word)
        .ok_or_else(|| undecodable("status", format!("`{word}` is not a state of this table map")))?;
    let raw = raw(row)?;
    let time = |column: &str| row.try_get::<Option<DateTime<Utc>>, _>(column);
    Ok(Record {
        message: map.message(&raw).0,
        sequence: row.try_get("seq")?,
        state,
        attempts: u32::try_from(raw.attempts).unwrap_or(0),
        next_attempt_at: time("next_attempt_at")?.unwrap_or(raw.created_at),
        locked_by: row.try_get("locked_by")?,
        locked_until: time("locked_until")?,
        last_error: row.try_get("last_error")?,
        created_at: raw.created_at,
        updated_at: time("updated_at")?.unwrap_or(raw.created_at),
        delivered_at: time("delivered_at")?,
    })
}
