//! From rows to the core's types.

use std::time::Duration;

use chrono::{DateTime, Utc};
use posthaste_core::TableMap;
use posthaste_core::integrity::{ContentHash, StoredHash};
use posthaste_core::message::{Headers, Message, MessageId};
use posthaste_core::store::{ClaimedMessage, Record};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;
use sqlx::types::Json;
use uuid::fmt::Hyphenated;

/// A thousand years: longer than anybody means, and far from where SQLite's integers turn into floats.
const FOREVER_MS: i64 = 1_000 * 365 * 24 * 3_600 * 1_000;

/// Milliseconds as SQL takes them.
pub(crate) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).map_or(FOREVER_MS, |millis| millis.min(FOREVER_MS))
}

/// A time as the tables keep it, rounded up: nothing is delivered too early.
pub(crate) fn epoch_millis(time: DateTime<Utc>) -> i64 {
    time.timestamp_micros().saturating_add(999).div_euclid(1_000)
}

pub(crate) fn time(row: &SqliteRow, column: &str) -> sqlx::Result<DateTime<Utc>> {
    from_epoch_millis(row.try_get(column)?, column)
}

fn optional_time(row: &SqliteRow, column: &str) -> sqlx::Result<Option<DateTime<Utc>>> {
    let millis: Option<i64> = row.try_get(column)?;
    millis.map(|millis| from_epoch_millis(millis, column)).transpose()
}

fn from_epoch_millis(millis: i64, column: &str) -> sqlx::Result<DateTime<Utc>> {
    DateTime::from_timestamp_millis(millis)
        .ok_or_else(|| undecodable(column, format!("{millis} is not a time in milliseconds")))
}

pub(crate) fn undecodable(column: &str, reason: String) -> sqlx::Error {
    sqlx::Error::ColumnDecode {
        index: column.to_owned(),
        source: reason.into(),
    }
}

/// A count of attempts; the column is signed, the value never negative.
fn attempts(row: &SqliteRow) -> sqlx::Result<u32> {
    Ok(u32::try_from(row.try_get::<i64, _>("attempts")?).unwrap_or(0))
}

pub(crate) fn id(row: &SqliteRow) -> sqlx::Result<MessageId> {
    Ok(row.try_get::<Hyphenated, _>("id")?.into_uuid().into())
}

/// The ids of changed rows by sequence; `UPDATE … RETURNING` gives them in any order.
pub(crate) fn ids_by_sequence(mut rows: Vec<SqliteRow>) -> sqlx::Result<Vec<MessageId>> {
    sort_by_sequence(&mut rows);
    rows.iter().map(id).collect()
}

fn sort_by_sequence(rows: &mut [SqliteRow]) {
    rows.sort_by_cached_key(|row| row.try_get::<i64, _>("seq").unwrap_or_default());
}

fn message(row: &SqliteRow) -> sqlx::Result<Message> {
    Ok(Message {
        id: id(row)?,
        event_id: None,
        namespace: Some(row.try_get("namespace")?),
        topic: row.try_get("topic")?,
        ordering_key: row.try_get("ordering_key")?,
        tenant: row.try_get("tenant")?,
        dedupe_key: row.try_get("dedupe_key")?,
        event_type: row.try_get("event_type")?,
        source: row.try_get("source")?,
        aggregate_type: row.try_get("aggregate_type")?,
        aggregate_id: row.try_get("aggregate_id")?,
        content_type: row.try_get("content_type")?,
        payload: row.try_get::<Vec<u8>, _>("payload")?.into(),
        headers: row.try_get::<Json<Headers>, _>("headers")?.0,
        not_before: None,
    })
}

/// Claimed rows by sequence; `UPDATE … RETURNING` gives them in any order.
pub(crate) fn claimed(mut rows: Vec<SqliteRow>) -> sqlx::Result<Vec<ClaimedMessage>> {
    sort_by_sequence(&mut rows);
    rows.iter()
        .map(|row| {
            let hash: Option<Vec<u8>> = row.try_get("content_hash")?;
            Ok(ClaimedMessage {
                message: message(row)?,
                fault: None,
                created_at: time(row, "created_at")?,
                attempts: attempts(row)?,
                hash: hash.map(|bytes| StoredHash::own(ContentHash::try_from(bytes.as_slice()).ok())),
                version: None,
                max_attempts: None,
            })
        })
        .collect()
}

pub(crate) fn record(row: &SqliteRow, map: &TableMap) -> sqlx::Result<Record> {
    let word: String = row.try_get("status")?;
    let state = map
        .state(&word)
        .ok_or_else(|| undecodable("status", format!("`{word}` is not a state of this table map")))?;
    Ok(Record {
        message: message(row)?,
        sequence: Some(row.try_get("seq")?),
        state,
        attempts: attempts(row)?,
        next_attempt_at: time(row, "next_attempt_at")?,
        locked_by: row.try_get("locked_by")?,
        locked_until: optional_time(row, "locked_until")?,
        last_error: row.try_get("last_error")?,
        created_at: time(row, "created_at")?,
        updated_at: time(row, "updated_at")?,
        delivered_at: optional_time(row, "delivered_at")?,
    })
}
